//===- ArchiveTest.cpp - Reading and writing archives
//----------------------===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What the archive writer writes is read back, and nothing that a damaged or
// hostile file says leads to anything but an ArchiveError.
//
//===----------------------------------------------------------------------===//

#include "intarsia/Artifact/Archive.h"

#include "gtest/gtest.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <zlib.h>

using namespace intarsia::artifact;
namespace fs = std::filesystem;

namespace {

class ArchiveTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "intarsia-archive-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string path(const std::string &name) const { return folder / name; }
  std::string writeFile(const std::string &name, const std::string &bytes) {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string readFile(const std::string &name) {
    std::ifstream stream(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// A small archive with three records.
  std::string sample() {
    ArchiveWriter writer(path("sample.pt2"), "sample");
    writer.add("models/model.json", "{\"a\": 1}");
    writer.add("data/weights/weight_0", std::string(1000, 'w'));
    writer.add("empty", "");
    writer.finish();
    return readFile("sample.pt2");
  }

  fs::path folder;
};

/// The message of the ArchiveError that `action` throws.
template <typename Action>
std::string errorOf(Action action) {
  try {
    action();
  } catch (const ArchiveError &error) {
    return error.what();
  }
  return "no error";
}

void append16(std::string &out, uint16_t value) {
  out.append(reinterpret_cast<const char *>(&value), 2);
}
void append32(std::string &out, uint32_t value) {
  out.append(reinterpret_cast<const char *>(&value), 4);
}
void append64(std::string &out, uint64_t value) {
  out.append(reinterpret_cast<const char *>(&value), 8);
}

/// A zip file made by hand: what the writer does not write.
struct ZipBuilder {
  std::string bytes, directory;
  uint16_t count = 0;

  void add(const std::string &name, const std::string &stored, uint16_t method,
           uint32_t size, uint32_t crc, bool isZip64 = false) {
    uint32_t offset = bytes.size();
    append32(bytes, 0x04034b50);
    append16(bytes, 20), append16(bytes, 0), append16(bytes, method);
    append32(bytes, 0), append32(bytes, crc);
    append32(bytes, stored.size()), append32(bytes, size);
    append16(bytes, name.size()), append16(bytes, 0);
    bytes += name + stored;

    std::string extra;
    if (isZip64) {
      append16(extra, 1), append16(extra, 24);
      append64(extra, size), append64(extra, stored.size());
      append64(extra, offset);
    }
    append32(directory, 0x02014b50);
    append16(directory, 45), append16(directory, 45), append16(directory, 0);
    append16(directory, method), append32(directory, 0);
    append32(directory, crc);
    append32(directory, isZip64 ? 0xffffffff : stored.size());
    append32(directory, isZip64 ? 0xffffffff : size);
    append16(directory, name.size()), append16(directory, extra.size());
    append16(directory, 0), append16(directory, 0), append16(directory, 0);
    append32(directory, 0), append32(directory, isZip64 ? 0xffffffff : offset);
    directory += name + extra;
    ++count;
  }

  std::string finish(bool isZip64 = false) {
    uint64_t offset = bytes.size(), end = offset + directory.size();
    bytes += directory;
    if (isZip64) {
      append32(bytes, 0x06064b50), append64(bytes, 44);
      append16(bytes, 45), append16(bytes, 45);
      append32(bytes, 0), append32(bytes, 0);
      append64(bytes, count), append64(bytes, count);
      append64(bytes, directory.size()), append64(bytes, offset);
      append32(bytes, 0x07064b50), append32(bytes, 0);
      append64(bytes, end), append32(bytes, 1);
    }
    append32(bytes, 0x06054b50);
    append16(bytes, 0), append16(bytes, 0);
    append16(bytes, isZip64 ? 0xffff : count);
    append16(bytes, isZip64 ? 0xffff : count);
    append32(bytes, isZip64 ? 0xffffffff : directory.size());
    append32(bytes, isZip64 ? 0xffffffff : offset);
    append16(bytes, 0);
    return bytes;
  }
};

uint32_t crcOf(const std::string &text) {
  return crc32(0, reinterpret_cast<const Bytef *>(text.data()), text.size());
}

std::string deflated(const std::string &text) {
  std::string out(text.size() + 100, '\0');
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  stream.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(text.data()));
  stream.avail_in = text.size();
  stream.next_out = reinterpret_cast<Bytef *>(out.data());
  stream.avail_out = out.size();
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

} // namespace

TEST_F(ArchiveTest, RoundTrip) {
  sample();
  Archive archive(path("sample.pt2"));
  EXPECT_EQ(archive.root(), "sample");
  ASSERT_EQ(archive.records().size(), 3u);
  EXPECT_EQ(archive.records()[0].name, "models/model.json");
  EXPECT_EQ(archive.read("models/model.json"), "{\"a\": 1}");
  EXPECT_EQ(archive.read("empty"), "");
  const Record &weight = archive.get("data/weights/weight_0");
  EXPECT_EQ(archive.bytes(weight).size(), 1000u);
  EXPECT_EQ(static_cast<char>(archive.bytes(weight)[999]), 'w');
  EXPECT_EQ(archive.find("nothing"), nullptr);
  EXPECT_NE(errorOf([&] { archive.get("nothing"); }).find("'nothing'"),
            std::string::npos);
}

TEST_F(ArchiveTest, DataIsAligned) {
  ArchiveWriter writer(path("a.pt2"), "a");
  for (int i = 0; i < 70; ++i)
    writer.add("r" + std::string(i, 'x'), std::string(i * 7, 'd'));
  writer.finish();
  Archive archive(path("a.pt2"));
  for (const Record &record : archive.records())
    EXPECT_EQ(record.offset % 64, 0u) << record.name;
}

TEST_F(ArchiveTest, OutputDependsOnlyOnInput) {
  std::string first = sample();
  EXPECT_EQ(sample(), first);
}

TEST_F(ArchiveTest, MappedBytesOutliveTheArchive) {
  sample();
  std::shared_ptr<void> mapping;
  std::span<std::byte> bytes;
  {
    Archive archive(path("sample.pt2"));
    bytes = archive.bytes(archive.get("data/weights/weight_0"));
    mapping = archive.mapping();
  }
  // Writing changes this process's copy alone.
  bytes[0] = std::byte{'!'};
  EXPECT_EQ(Archive(path("sample.pt2")).read("data/weights/weight_0")[0], 'w');
}

TEST_F(ArchiveTest, WriterLeavesNothingBehindUnlessFinished) {
  writeFile("out.pt2", "the old file");
  {
    ArchiveWriter writer(path("out.pt2"), "out");
    writer.add("a", "b");
    EXPECT_NE(errorOf([&] { writer.add("a", "c"); }).find("twice"),
              std::string::npos);
  }
  EXPECT_EQ(readFile("out.pt2"), "the old file");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1);
  EXPECT_NE(errorOf([&] {
              ArchiveWriter("/nonexistent/x.pt2", "x");
            }).find("cannot be written"),
            std::string::npos);
}

TEST_F(ArchiveTest, WriterRefusesUnsafeNames) {
  ArchiveWriter writer(path("out.pt2"), "out");
  for (std::string name :
       {"", "/etc/passwd", "../up", "a/../b", "a//b", "a\\b", "a/", "."})
    EXPECT_NE(errorOf([&] { writer.add(name, "x"); }).find("clean"),
              std::string::npos)
        << name;
}

TEST_F(ArchiveTest, CopiesRecords) {
  sample();
  Archive from(path("sample.pt2"));
  ArchiveWriter writer(path("copy.pt2"), "copy");
  for (const Record &record : from.records())
    writer.copy(from, record);
  writer.finish();
  Archive copy(path("copy.pt2"));
  EXPECT_EQ(copy.root(), "copy");
  for (const Record &record : from.records())
    EXPECT_EQ(copy.read(record.name), from.read(record.name));
}

TEST_F(ArchiveTest, ReadsDeflatedRecords) {
  std::string text(100000, 'a');
  text += "the end";
  ZipBuilder zip;
  zip.add("r/big", deflated(text), 8, text.size(), crcOf(text));
  writeFile("d.pt2", zip.finish());
  Archive archive(path("d.pt2"));
  EXPECT_EQ(archive.read("big"), text);
  EXPECT_NE(
      errorOf([&] { archive.bytes(archive.get("big")); }).find("compressed"),
      std::string::npos);
}

TEST_F(ArchiveTest, ReadsZip64) {
  ZipBuilder zip;
  zip.add("r/a", "hello", 0, 5, crcOf("hello"), /*isZip64=*/true);
  writeFile("z.pt2", zip.finish(/*isZip64=*/true));
  EXPECT_EQ(Archive(path("z.pt2")).read("a"), "hello");
}

TEST_F(ArchiveTest, RefusesHostileDirectories) {
  auto error = [&](auto build) {
    ZipBuilder zip;
    build(zip);
    std::string file = writeFile("h.pt2", zip.finish());
    return errorOf([&] { Archive archive(file); });
  };
  uint32_t crc = crcOf("x");
  for (std::string name : {"r/../../x", "/x", "r\\x", "r//x"})
    EXPECT_NE(error([&](ZipBuilder &zip) {
                zip.add(name, "x", 0, 1, crc);
              }).find("not a clean relative path"),
              std::string::npos)
        << name;
  EXPECT_NE(error([&](ZipBuilder &zip) {
              zip.add("r/x", "x", 0, 1, crc);
              zip.add("r/x", "x", 0, 1, crc);
            }).find("twice"),
            std::string::npos);
  // A size that the file cannot hold.
  EXPECT_NE(error([&](ZipBuilder &zip) {
              zip.add("r/x", "x", 0, 1, crc);
              uint32_t huge = 0x7fffffff;
              std::memcpy(zip.directory.data() + 20, &huge, 4);
              std::memcpy(zip.directory.data() + 24, &huge, 4);
            }).find("past the end"),
            std::string::npos);
  EXPECT_NE(error([&](ZipBuilder &zip) {
              zip.add("r/x", "x", 8, 0x7fffffff, crc);
            }).find("impossible"),
            std::string::npos);
  EXPECT_NE(error([&](ZipBuilder &zip) {
              zip.add("r/x", "x", 12, 1, crc);
            }).find("compression method 12"),
            std::string::npos);
}

TEST_F(ArchiveTest, DetectsDamage) {
  std::string bytes = sample();
  bytes[bytes.find("wwww")] = 'v';
  Archive archive(writeFile("x.pt2", bytes));
  std::string message = errorOf([&] { archive.read("data/weights/weight_0"); });
  EXPECT_NE(message.find("checksum"), std::string::npos);
  EXPECT_NE(message.find("x.pt2"), std::string::npos);
  EXPECT_EQ(archive.read("models/model.json"), "{\"a\": 1}");
}

TEST_F(ArchiveTest, MissingAndOddFiles) {
  EXPECT_NE(errorOf([&] {
              Archive archive(path("none.pt2"));
            }).find("cannot be opened"),
            std::string::npos);
  EXPECT_NE(errorOf([&] { Archive archive(folder); }).find("regular file"),
            std::string::npos);
}

TEST_F(ArchiveTest, EveryTruncationIsAnError) {
  std::string bytes = sample();
  for (size_t length = 0; length < bytes.size(); ++length) {
    std::string file = writeFile("t.pt2", bytes.substr(0, length));
    EXPECT_NE(errorOf([&] { Archive archive(file); }), "no error") << length;
  }
}

// Every byte is changed in turn: the archive opens and reads, or there is an
// ArchiveError. Run it with a sanitizer to see more.
TEST_F(ArchiveTest, SurvivesAnyChangedByte) {
  std::string bytes = sample();
  for (size_t at = 0; at < bytes.size(); ++at)
    for (unsigned char change : {0x01, 0x80, 0xff}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ change);
      std::string file = writeFile("c.pt2", changed);
      errorOf([&] {
        Archive archive(file);
        for (const Record &record : archive.records())
          archive.read(record.name);
      });
    }
}
