//===- ArchiveWriter.cpp - Writing .pt2 archives
//---------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Writes artifacts in the form that `torch.export.load` opens too: every record
// is stored, and an extra field "FB" of the needed length puts its data on a
// 64-byte boundary, as PyTorchStreamWriter does.
//
//===----------------------------------------------------------------------===//

#include "ZipFormat.h"
#include "intarsia/Artifact/Archive.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

using namespace intarsia::artifact;

static constexpr uint64_t kAlignment = 64;

void ArchiveWriter::fail(std::string_view record,
                         std::string_view message) const {
  throw ArchiveError(file, record, message);
}

ArchiveWriter::ArchiveWriter(const std::string &path, const std::string &root)
    : file(path), rootFolder(root) {
  if (!zip::isCleanPath(root) || root.find('/') != root.npos)
    fail("", "'" + root + "' cannot be an archive's root folder");
  // A link stays one: what it points to is replaced. A device or pipe must not.
  std::error_code error;
  if (std::filesystem::path target = std::filesystem::canonical(path, error);
      !error)
    file = target.string();
  if (std::filesystem::exists(file, error) &&
      !std::filesystem::is_regular_file(file, error))
    fail("", "cannot be written: it exists and is no regular file");
  // A file without a name, where the file system has them, vanishes with the
  // process, however that ends.
  std::string folder = std::filesystem::path(file).parent_path().string();
  descriptor = ::open(folder.empty() ? "." : folder.c_str(),
                      O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor >= 0)
    return;
  temporary = file + ".XXXXXX";
  descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) {
    temporary.clear();
    fail("", std::string("cannot be written: ") + std::strerror(errno));
  }
}

ArchiveWriter::~ArchiveWriter() {
  if (descriptor >= 0)
    ::close(descriptor);
  if (!temporary.empty())
    ::unlink(temporary.c_str());
}

void ArchiveWriter::write(const void *bytes, size_t count) {
  const char *at = static_cast<const char *>(bytes);
  while (count > 0) {
    ssize_t written = ::write(descriptor, at, std::min(count, size_t(1) << 30));
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      fail("", std::string("cannot be written: ") + std::strerror(errno));
    at += written;
    count -= static_cast<size_t>(written);
    position += static_cast<uint64_t>(written);
  }
}

static uint32_t clamp32(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, zip::kNone32));
}

/// The part that a local header and a directory entry have in common.
static void appendEntry(std::string &out, const Record &record, bool isZip64,
                        size_t extraLength) {
  zip::append<uint16_t>(out, isZip64 ? 45 : 20); // version needed
  zip::append<uint16_t>(out, zip::kUtf8Flag);
  zip::append<uint16_t>(out, zip::kStored);
  zip::append<uint16_t>(out, 0);      // time: midnight
  zip::append<uint16_t>(out, 0x0021); // date: 1980-01-01, the format's first
  zip::append<uint32_t>(out, record.crc);
  zip::append<uint32_t>(out, isZip64 ? zip::kNone32 : clamp32(record.size));
  zip::append<uint32_t>(out, isZip64 ? zip::kNone32 : clamp32(record.size));
  zip::append<uint16_t>(out, static_cast<uint16_t>(record.name.size()));
  zip::append<uint16_t>(out, static_cast<uint16_t>(extraLength));
}

void ArchiveWriter::add(std::string_view name,
                        std::span<const std::byte> contents) {
  Record record;
  record.name = rootFolder + "/" + std::string(name);
  if (descriptor < 0)
    fail(name, "added to a finished archive");
  if (!zip::isCleanPath(name) || record.name.size() > 0xffff - 1024)
    fail(name, "its name is not a clean relative path");
  if (!index.emplace(name, entries.size()).second)
    fail(name, "is added twice");
  record.size = record.compressedSize = contents.size();
  record.offset = position;
  record.crc = static_cast<uint32_t>(crc32_z(
      0, reinterpret_cast<const Bytef *>(contents.data()), contents.size()));

  bool isZip64 = record.size >= zip::kNone32;
  std::string extra;
  if (isZip64) {
    zip::append<uint16_t>(extra, zip::kZip64Extra);
    zip::append<uint16_t>(extra, 16);
    zip::append<uint64_t>(extra, record.size);
    zip::append<uint64_t>(extra, record.size);
  }
  uint64_t start = position + zip::kLocalHeaderSize + record.name.size() +
                   extra.size() + 4; // 4: the padding field's own header
  uint64_t padding = (kAlignment - start % kAlignment) % kAlignment;
  extra += "FB";
  zip::append<uint16_t>(extra, static_cast<uint16_t>(padding));
  extra.append(padding, 'Z');

  std::string header;
  zip::append<uint32_t>(header, zip::kLocalHeader);
  appendEntry(header, record, isZip64, extra.size());
  header += record.name;
  header += extra;
  write(header.data(), header.size());
  write(contents.data(), contents.size());
  entries.push_back(std::move(record));
}

void ArchiveWriter::add(std::string_view name, std::string_view contents) {
  add(name, std::as_bytes(std::span(contents.data(), contents.size())));
}

void ArchiveWriter::copy(const Archive &from, const Record &record) {
  if (record.deflated) {
    add(record.name, from.read(record.name));
    return;
  }
  from.verify(record);
  add(record.name, from.bytes(record));
}

std::string ArchiveWriter::digest(bool (*covers)(std::string_view name)) const {
  return zip::digestOf(entries, rootFolder.size() + 1, covers);
}

/// Gives the file a temporary name, from which it is renamed.
bool ArchiveWriter::nameFile() {
  std::string self = "/proc/self/fd/" + std::to_string(descriptor);
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name =
        file + "." + std::to_string(::getpid()) + "-" + std::to_string(attempt);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(),
                 AT_SYMLINK_FOLLOW) == 0) {
      temporary = name;
      return true;
    }
    if (errno != EEXIST)
      return false;
  }
  return false;
}

void ArchiveWriter::finish() {
  if (descriptor < 0)
    fail("", "finished twice");
  uint64_t directoryOffset = position;
  std::string directory;
  for (const Record &record : entries) {
    std::string extra;
    bool isLarge = record.size >= zip::kNone32;
    bool isFar = record.offset >= zip::kNone32;
    if (isLarge || isFar) {
      zip::append<uint16_t>(extra, zip::kZip64Extra);
      zip::append<uint16_t>(extra, (isLarge ? 16 : 0) + (isFar ? 8 : 0));
      if (isLarge) {
        zip::append<uint64_t>(extra, record.size);
        zip::append<uint64_t>(extra, record.size);
      }
      if (isFar)
        zip::append<uint64_t>(extra, record.offset);
    }
    zip::append<uint32_t>(directory, zip::kDirectoryEntry);
    zip::append<uint16_t>(directory, 45); // version made by
    appendEntry(directory, record, isLarge, extra.size());
    zip::append<uint16_t>(directory, 0); // comment
    zip::append<uint16_t>(directory, 0); // volume
    zip::append<uint16_t>(directory, 0); // internal attributes
    zip::append<uint32_t>(directory, 0); // external attributes
    zip::append<uint32_t>(directory, clamp32(record.offset));
    directory += record.name;
    directory += extra;
  }
  uint64_t directorySize = directory.size();
  uint64_t endOffset = directoryOffset + directorySize;
  if (entries.size() >= zip::kNone16 || directoryOffset >= zip::kNone32 ||
      directorySize >= zip::kNone32) {
    zip::append<uint32_t>(directory, zip::kEnd64);
    zip::append<uint64_t>(directory, zip::kEnd64Size - 12);
    zip::append<uint16_t>(directory, 45);
    zip::append<uint16_t>(directory, 45);
    zip::append<uint32_t>(directory, 0);
    zip::append<uint32_t>(directory, 0);
    zip::append<uint64_t>(directory, entries.size());
    zip::append<uint64_t>(directory, entries.size());
    zip::append<uint64_t>(directory, directorySize);
    zip::append<uint64_t>(directory, directoryOffset);
    zip::append<uint32_t>(directory, zip::kEnd64Locator);
    zip::append<uint32_t>(directory, 0);
    zip::append<uint64_t>(directory, endOffset);
    zip::append<uint32_t>(directory, 1);
  }
  uint16_t count =
      static_cast<uint16_t>(std::min<uint64_t>(entries.size(), zip::kNone16));
  zip::append<uint32_t>(directory, zip::kEnd);
  zip::append<uint16_t>(directory, 0);
  zip::append<uint16_t>(directory, 0);
  zip::append<uint16_t>(directory, count);
  zip::append<uint16_t>(directory, count);
  zip::append<uint32_t>(directory, clamp32(directorySize));
  zip::append<uint32_t>(directory, clamp32(directoryOffset));
  zip::append<uint16_t>(directory, 0);
  write(directory.data(), directory.size());

  // mkstemp's file is private to the user; an artifact has the usual mode.
  mode_t mask = ::umask(0);
  ::umask(mask);
  bool ok = ::fchmod(descriptor, 0666 & ~mask) == 0 && ::fsync(descriptor) == 0;
  ok = ok && (!temporary.empty() || nameFile());
  int error = errno;
  ok &= ::close(descriptor) == 0;
  descriptor = -1;
  if (!ok)
    fail("", std::string("cannot be written: ") + std::strerror(error));
  if (std::rename(temporary.c_str(), file.c_str()) != 0)
    fail("", std::string("cannot be written: ") + std::strerror(errno));
  temporary.clear();

  // The new name itself must survive a crash too.
  std::string folder = file.substr(0, file.find_last_of('/') + 1);
  int folderDescriptor =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (folderDescriptor >= 0) {
    ::fsync(folderDescriptor);
    ::close(folderDescriptor);
  }
}
