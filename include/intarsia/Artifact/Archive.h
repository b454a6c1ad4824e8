//===- Archive.h - Reading and writing .pt2 archives --------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// A `.pt2` file is a zip archive with one root folder, most of whose records
// are stored uncompressed, 64 bytes aligned, so that weights can be mapped.
// The compiler reads programs from it and writes artifacts into it; the runtime
// maps weights and kernels out of it. No MLIR, no torch.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_ARTIFACT_ARCHIVE_H
#define INTARSIA_ARTIFACT_ARCHIVE_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace intarsia::artifact {

/// what() names the file, the record when one is concerned, and the fault.
class ArchiveError : public std::runtime_error {
public:
  ArchiveError(std::string_view path, std::string_view record,
               std::string_view message);
  const std::string &path() const { return file; }
  const std::string &record() const { return name; }

private:
  std::string file, name;
};

/// One file of an archive.
struct Record {
  std::string name; // without the archive's root folder
  uint64_t size = 0;
  uint64_t compressedSize = 0;
  /// Of the data's first byte, from the start of the archive file.
  uint64_t offset = 0;
  uint32_t crc = 0;
  bool deflated = false;
};

/// A zip archive, mapped into memory. The whole directory is checked when it is
/// opened; a record's contents (checksum) only by `verify` and `read`.
/// Movable; const members are safe from several threads.
class Archive {
public:
  /// Throws ArchiveError for a file that is missing, cut short or malformed.
  explicit Archive(const std::string &path);

  const std::string &path() const { return file; }
  /// The one folder that all records are in; "" when there is none.
  const std::string &root() const { return rootFolder; }
  /// In the order of the archive's directory.
  const std::vector<Record> &records() const { return entries; }
  /// Null when there is no such record. Names are without the root folder.
  const Record *find(std::string_view name) const;
  /// Throws ArchiveError when there is no such record.
  const Record &get(std::string_view name) const;

  /// For messages: what wrote an archive that is neither an exported program
  /// nor a compiled one; "" when that is unknown.
  std::string otherWriter() const;

  /// The bytes of a stored record, in the mapping; throws for a deflated one.
  /// They live as long as this object or a copy of `mapping()`. Pages are
  /// private copies on write: writing never reaches the file.
  std::span<std::byte> bytes(const Record &record) const;
  /// Keeps the mapped bytes alive.
  std::shared_ptr<void> mapping() const { return map; }
  /// The contents, inflated when necessary, checksum verified.
  std::string read(std::string_view name) const;
  /// Throws ArchiveError when the contents do not match the checksum.
  void verify(const Record &record) const;

  /// Tells archives apart by the names, sizes and checksums of the records
  /// whose names `covers` takes.
  std::string digest(bool (*covers)(std::string_view name)) const;

private:
  void readDirectory();
  std::string inflate(const Record &record) const;
  [[noreturn]] void fail(std::string_view record,
                         std::string_view message) const;

  std::string file, rootFolder;
  std::shared_ptr<void> map;
  std::byte *data = nullptr;
  uint64_t size = 0;
  std::vector<Record> entries;
  std::map<std::string, size_t, std::less<>> index;
};

/// Writes an archive as PyTorch's own writer does: records stored, their data
/// aligned to 64 bytes. The file appears under its name, complete and synced to
/// disk, when `finish` returns; until then, or after an error, there is
/// nothing, or, where the file system has no files without a name, a temporary
/// file in the same folder that the destructor removes. The output depends only
/// on the calls (no time stamps).
class ArchiveWriter {
public:
  /// `root` is the folder that the records are put into; PyTorch takes the
  /// file's stem. Throws ArchiveError.
  ArchiveWriter(const std::string &path, const std::string &root);
  ~ArchiveWriter();
  ArchiveWriter(const ArchiveWriter &) = delete;
  ArchiveWriter &operator=(const ArchiveWriter &) = delete;

  /// `name` is without the root folder; throws for one that exists already or
  /// is no clean relative path.
  void add(std::string_view name, std::span<const std::byte> contents);
  void add(std::string_view name, std::string_view contents);
  /// Copies a record of another archive, verifying its checksum.
  void copy(const Archive &from, const Record &record);
  /// Of the records so far, as `Archive::digest` of the finished file.
  std::string digest(bool (*covers)(std::string_view name)) const;
  void finish();

private:
  void write(const void *bytes, size_t count);
  bool nameFile();
  [[noreturn]] void fail(std::string_view record,
                         std::string_view message) const;

  std::string file, temporary, rootFolder;
  int descriptor = -1;
  uint64_t position = 0;
  std::vector<Record> entries; // Record::offset: of the local header
  std::map<std::string, size_t, std::less<>> index;
};

} // namespace intarsia::artifact

#endif // INTARSIA_ARTIFACT_ARCHIVE_H
