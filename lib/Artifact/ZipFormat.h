//===- ZipFormat.h - The numbers of the zip format ----------------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Signatures, sizes and little-endian access for the reader and the writer
// (PKWARE's APPNOTE, sections 4.3 and 4.5.3).
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_LIB_ARTIFACT_ZIPFORMAT_H
#define INTARSIA_LIB_ARTIFACT_ZIPFORMAT_H

#include "intarsia/Artifact/Archive.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace intarsia::artifact::zip {

constexpr uint32_t kLocalHeader = 0x04034b50, kDirectoryEntry = 0x02014b50,
                   kEnd = 0x06054b50, kEnd64 = 0x06064b50,
                   kEnd64Locator = 0x07064b50;
constexpr uint64_t kLocalHeaderSize = 30, kDirectoryEntrySize = 46,
                   kEndSize = 22, kEnd64Size = 56, kEnd64LocatorSize = 20;
constexpr uint16_t kZip64Extra = 1, kStored = 0, kDeflated = 8,
                   kEncryptedFlag = 1, kUtf8Flag = 0x800;
constexpr uint32_t kNone32 = 0xffffffff;
constexpr uint16_t kNone16 = 0xffff;

/// Little-endian; the caller has checked that the bytes exist.
template <typename T>
T load(const std::byte *at) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value |= static_cast<T>(static_cast<T>(at[i]) << (8 * i));
  return value;
}

template <typename T>
void append(std::string &out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

/// A relative path with no empty, "." or ".." part and no backslash: safe to
/// create below any folder.
bool isCleanPath(std::string_view name);

/// Archive::digest; the first `rootLength` characters of a name do not count.
std::string digestOf(std::span<const Record> records, size_t rootLength,
                     bool (*covers)(std::string_view name));

} // namespace intarsia::artifact::zip

#endif // INTARSIA_LIB_ARTIFACT_ZIPFORMAT_H
