//===- Archive.cpp - Reading .pt2 archives
//---------------------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The zip reader behind the importer's `.pt2` door and the runtime's loader.
// Archives come from anywhere, so nothing in them is believed: every offset and
// size is checked against the file before it is used.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Artifact/Archive.h"
#include "ZipFormat.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

using namespace intarsia::artifact;

ArchiveError::ArchiveError(std::string_view path, std::string_view record,
                           std::string_view message)
    : std::runtime_error(
          std::string(path) + ": " +
          (record.empty() ? "" : "record '" + std::string(record) + "': ") +
          std::string(message)),
      file(path), name(record) {}

bool zip::isCleanPath(std::string_view name) {
  if (name.empty() || name.find('\\') != name.npos ||
      name.find('\0') != name.npos)
    return false;
  while (true) {
    size_t slash = name.find('/');
    std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..")
      return false;
    if (slash == name.npos)
      return true;
    name.remove_prefix(slash + 1);
  }
}

void Archive::fail(std::string_view record, std::string_view message) const {
  throw ArchiveError(file, record, message);
}

Archive::Archive(const std::string &path) : file(path) {
  int descriptor =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO waits
  if (descriptor < 0)
    fail("", std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status;
  int statResult = ::fstat(descriptor, &status);
  if (statResult != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail("", "is not a regular file");
  }
  size = static_cast<uint64_t>(status.st_size);
  if (size == 0) {
    ::close(descriptor);
    fail("", "is empty");
  }
  // Private and writable: an operator that writes into a weight without
  // declaring it changes this process's copy, and neither the file nor the
  // process's life.
  void *address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_NORESERVE, descriptor, 0);
  int error = errno;
  ::close(descriptor);
  if (address == MAP_FAILED)
    fail("", std::string("cannot be mapped: ") + std::strerror(error));
  map = std::shared_ptr<void>(
      address, [length = size](void *start) { ::munmap(start, length); });
  data = static_cast<std::byte *>(address);
  readDirectory();
}

namespace {

/// Where the directory is, from the end records.
struct Directory {
  uint64_t offset, size, count;
};

} // namespace

/// What a file without the end of an archive is.
static std::string whatElse(const std::byte *data, uint64_t size) {
  std::string_view text(reinterpret_cast<const char *>(data), size);
  if (text.starts_with("PK\3\4"))
    return "is cut short: it begins like an archive, of which the end record "
           "is missing";
  std::string what;
  uint64_t header = 0;
  if (size >= 8)
    std::memcpy(&header, data, sizeof(header));
  if (size > 9 && data[8] == std::byte('{') && header <= size - 8)
    what = ", but a safetensors file: weights without a program";
  else if (text.starts_with("\x80\2"))
    what = ", but a pickle, as older versions of torch.save wrote";
  else if (text.starts_with("\x93NUMPY"))
    what = ", but a .npy file";
  else if (text.starts_with("\x7f"
                            "ELF"))
    what = ", but a program or shared library";
  return "is no archive" + what +
         "; torch.export.save and intarsia-compile write archives";
}

/// Finds the end record (the last one whose comment reaches exactly to the
/// file's end) and, when it says so, its zip64 form.
static std::optional<Directory>
findDirectory(const std::byte *data, uint64_t size, std::string &fault) {
  if (size < zip::kEndSize) {
    fault = whatElse(data, size);
    return std::nullopt;
  }
  uint64_t last = size - zip::kEndSize;
  uint64_t first = last > 0xffff ? last - 0xffff : 0;
  for (uint64_t at = last + 1; at-- > first;) {
    if (zip::load<uint32_t>(data + at) != zip::kEnd ||
        at + zip::kEndSize + zip::load<uint16_t>(data + at + 20) != size)
      continue;
    uint16_t disk = zip::load<uint16_t>(data + at + 4);
    Directory directory{zip::load<uint32_t>(data + at + 16),
                        zip::load<uint32_t>(data + at + 12),
                        zip::load<uint16_t>(data + at + 10)};
    bool isZip64 = directory.offset == zip::kNone32 ||
                   directory.size == zip::kNone32 ||
                   directory.count == zip::kNone16;
    uint64_t end = at;
    if (isZip64 && at >= zip::kEnd64LocatorSize &&
        zip::load<uint32_t>(data + at - zip::kEnd64LocatorSize) ==
            zip::kEnd64Locator) {
      uint64_t end64 = zip::load<uint64_t>(data + at - 12);
      if (at < zip::kEnd64LocatorSize + zip::kEnd64Size ||
          end64 > at - zip::kEnd64LocatorSize - zip::kEnd64Size ||
          zip::load<uint32_t>(data + end64) != zip::kEnd64) {
        fault = "the zip64 end record is not where the archive says";
        return std::nullopt;
      }
      directory = {zip::load<uint64_t>(data + end64 + 48),
                   zip::load<uint64_t>(data + end64 + 40),
                   zip::load<uint64_t>(data + end64 + 32)};
      end = end64;
    } else if (disk != 0 && disk != zip::kNone16) {
      fault = "archives of several volumes are not supported";
      return std::nullopt;
    }
    if (directory.offset > end || directory.size > end - directory.offset) {
      fault = "the directory lies outside the file";
      return std::nullopt;
    }
    if (directory.count > directory.size / zip::kDirectoryEntrySize) {
      fault = "the directory is smaller than its " +
              std::to_string(directory.count) + " entries";
      return std::nullopt;
    }
    return directory;
  }
  fault = whatElse(data, size);
  return std::nullopt;
}

/// Replaces the fields that the directory could not hold in 32 bits by those of
/// the zip64 extra field. False when it is missing or too short.
static bool applyZip64(const std::byte *extra, uint64_t length,
                       std::initializer_list<uint64_t *> fields) {
  bool needed = false;
  for (uint64_t *field : fields)
    needed |= *field == zip::kNone32;
  if (!needed)
    return true;
  while (length >= 4) {
    uint16_t tag = zip::load<uint16_t>(extra);
    uint64_t count = zip::load<uint16_t>(extra + 2);
    extra += 4, length -= 4;
    if (count > length)
      return false;
    if (tag == zip::kZip64Extra) {
      for (uint64_t *field : fields) {
        if (*field != zip::kNone32)
          continue;
        if (count < 8)
          return false;
        *field = zip::load<uint64_t>(extra);
        extra += 8, count -= 8;
      }
      return true;
    }
    extra += count, length -= count;
  }
  return false;
}

std::string Archive::otherWriter() const {
  if (find("constants.pkl"))
    return "TorchScript (torch.jit.save)";
  return find("data.pkl") ? "torch.save: weights or an object, no program" : "";
}

void Archive::readDirectory() {
  std::string fault;
  std::optional<Directory> directory = findDirectory(data, size, fault);
  if (!directory)
    fail("", fault);

  uint64_t at = directory->offset, end = directory->offset + directory->size;
  std::vector<std::pair<uint64_t, uint64_t>> ranges; // local header .. data end
  entries.reserve(directory->count);
  for (uint64_t i = 0; i < directory->count; ++i) {
    if (end - at < zip::kDirectoryEntrySize ||
        zip::load<uint32_t>(data + at) != zip::kDirectoryEntry)
      fail("", "the directory's entry " + std::to_string(i) + " is malformed");
    const std::byte *entry = data + at;
    uint16_t flags = zip::load<uint16_t>(entry + 8);
    uint16_t method = zip::load<uint16_t>(entry + 10);
    uint64_t nameLength = zip::load<uint16_t>(entry + 28),
             extraLength = zip::load<uint16_t>(entry + 30),
             commentLength = zip::load<uint16_t>(entry + 32);
    if (end - at - zip::kDirectoryEntrySize <
        nameLength + extraLength + commentLength)
      fail("", "the directory's entry " + std::to_string(i) + " is cut short");

    Record record;
    record.name.assign(
        reinterpret_cast<const char *>(entry + zip::kDirectoryEntrySize),
        nameLength);
    record.crc = zip::load<uint32_t>(entry + 16);
    record.compressedSize = zip::load<uint32_t>(entry + 20);
    record.size = zip::load<uint32_t>(entry + 24);
    uint64_t header = zip::load<uint32_t>(entry + 42);
    if (!applyZip64(entry + zip::kDirectoryEntrySize + nameLength, extraLength,
                    {&record.size, &record.compressedSize, &header}))
      fail(record.name, "its zip64 sizes are missing");
    at += zip::kDirectoryEntrySize + nameLength + extraLength + commentLength;

    bool isFolder =
        !record.name.empty() && record.name.back() == '/' && record.size == 0;
    std::string_view name = record.name;
    if (isFolder)
      name.remove_suffix(1);
    if (!zip::isCleanPath(name))
      fail(record.name, "its name is not a clean relative path");
    if (isFolder)
      continue;
    if (flags & zip::kEncryptedFlag)
      fail(record.name, "is encrypted");
    if (method != zip::kStored && method != zip::kDeflated)
      fail(record.name, "has compression method " + std::to_string(method) +
                            "; only stored and deflated are supported");
    record.deflated = method == zip::kDeflated;
    if (!record.deflated && record.size != record.compressedSize)
      fail(record.name, "is stored, but its two sizes differ");
    // Deflate cannot expand by more than this.
    if (record.deflated && record.size / 1032 > record.compressedSize + 1)
      fail(record.name, "its declared size of " + std::to_string(record.size) +
                            " bytes is impossible");

    if (header > directory->offset ||
        directory->offset - header < zip::kLocalHeaderSize ||
        zip::load<uint32_t>(data + header) != zip::kLocalHeader)
      fail(record.name, "its header is not where the directory says");
    uint64_t localNameLength = zip::load<uint16_t>(data + header + 26);
    uint64_t before = zip::kLocalHeaderSize + localNameLength +
                      zip::load<uint16_t>(data + header + 28);
    if (directory->offset - header < before || localNameLength != nameLength ||
        std::memcmp(data + header + zip::kLocalHeaderSize, record.name.data(),
                    nameLength) != 0)
      fail(record.name, "its header does not match the directory");
    record.offset = header + before;
    if (record.compressedSize > directory->offset - record.offset)
      fail(record.name, "its declared size of " +
                            std::to_string(record.compressedSize) +
                            " bytes reaches past the end of the data");
    ranges.emplace_back(header, record.offset + record.compressedSize);
    entries.push_back(std::move(record));
  }

  // Overlapping records are how a small file claims to hold a lot.
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      fail("", "two records overlap");

  if (!entries.empty())
    rootFolder = entries[0].name.substr(0, entries[0].name.find('/') + 1);
  for (const Record &record : entries)
    if (!record.name.starts_with(rootFolder))
      rootFolder.clear();
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].name.erase(0, rootFolder.size());
    if (!index.emplace(entries[i].name, i).second)
      fail(entries[i].name, "appears twice");
  }
  if (!rootFolder.empty())
    rootFolder.pop_back();
}

const Record *Archive::find(std::string_view name) const {
  auto found = index.find(name);
  return found == index.end() ? nullptr : &entries[found->second];
}

const Record &Archive::get(std::string_view name) const {
  if (const Record *record = find(name))
    return *record;
  fail(name, "is missing");
}

std::span<std::byte> Archive::bytes(const Record &record) const {
  if (record.deflated)
    fail(record.name, "is compressed and cannot be mapped");
  return {data + record.offset, record.size};
}

static uint32_t checksum(const void *bytes, size_t count) {
  return static_cast<uint32_t>(
      crc32_z(0, static_cast<const Bytef *>(bytes), count));
}

std::string Archive::inflate(const Record &record) const {
  std::string contents(record.size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
    fail(record.name, "cannot be inflated: out of memory");
  uint64_t in = 0, out = 0;
  int status = Z_OK;
  // zlib counts in 32 bits; feed it in pieces.
  constexpr uint64_t kPiece = uint64_t(1) << 30;
  do {
    stream.next_in = reinterpret_cast<Bytef *>(data + record.offset + in);
    stream.avail_in =
        static_cast<uInt>(std::min(kPiece, record.compressedSize - in));
    stream.next_out = reinterpret_cast<Bytef *>(contents.data() + out);
    stream.avail_out = static_cast<uInt>(std::min(kPiece, record.size - out));
    uInt inBefore = stream.avail_in, outBefore = stream.avail_out;
    status = ::inflate(&stream, Z_NO_FLUSH);
    in += inBefore - stream.avail_in;
    out += outBefore - stream.avail_out;
    if (inBefore == stream.avail_in && outBefore == stream.avail_out)
      break;
  } while (status == Z_OK);
  inflateEnd(&stream);
  if (status != Z_STREAM_END || out != record.size ||
      in != record.compressedSize)
    fail(record.name, "its compressed data is damaged");
  return contents;
}

std::string Archive::read(std::string_view name) const {
  const Record &record = get(name);
  // Text that takes long to read comes from a file of its size. Programs
  // compress to a twentieth; weights, which may be all zeros, are no text.
  constexpr uint64_t kText = uint64_t(16) << 20, kRatio = 200;
  if (record.deflated && name.ends_with(".json") && record.size > kText &&
      record.size / kRatio > record.compressedSize)
    fail(record.name,
         "its " + std::to_string(record.size) + " bytes are compressed to " +
             std::to_string(record.compressedSize) + ", as no program is");
  std::string contents =
      record.deflated
          ? inflate(record)
          : std::string(reinterpret_cast<const char *>(data + record.offset),
                        record.size);
  if (checksum(contents.data(), contents.size()) != record.crc)
    fail(record.name, "its contents do not match their checksum");
  return contents;
}

std::string zip::digestOf(std::span<const Record> records, size_t rootLength,
                          bool (*covers)(std::string_view name)) {
  uint64_t total = 0;
  uint32_t crc = 0;
  for (const Record &record : records) {
    std::string_view name = std::string_view(record.name).substr(rootLength);
    if (!covers(name))
      continue;
    std::string line = std::string(name) + " " + std::to_string(record.size) +
                       " " + std::to_string(record.crc) + "\n";
    crc = crc32(crc, reinterpret_cast<const Bytef *>(line.data()),
                uInt(line.size()));
    total += record.size;
  }
  return std::to_string(total) + "-" + std::to_string(crc);
}

std::string Archive::digest(bool (*covers)(std::string_view name)) const {
  return zip::digestOf(entries, 0, covers);
}

void Archive::verify(const Record &record) const {
  if (record.deflated)
    read(record.name);
  else if (checksum(data + record.offset, record.size) != record.crc)
    fail(record.name, "its contents do not match their checksum");
}
