#pragma once

#include <cstdint>

#include "simd/isa.h"

/// The random streams of vLLM's sampling kernels. `Word` is an unsigned 32-bit number or a vector
/// of them.
namespace pyvllm_pp::kernels {

template <typename Word>
PYVLLM_PP_INLINE Word rotate_left(Word value, unsigned count) {
  return value << count | value >> (32U - count);
}

/// One round of MurmurHash3 (x86, 32 bits).
template <typename Word>
PYVLLM_PP_INLINE Word murmur_mix(Word hash, Word key) {
  key = rotate_left(key * 0xcc9e2d51U, 15U) * 0x1b873593U;
  return rotate_left(hash ^ key, 13U) * 5U + 0xe6546b64U;
}

/// Hash of a request's seed and a position in it: the part that all tokens share.
inline std::uint32_t murmur_prefix(std::int64_t seed, std::int64_t position,
                                   std::uint32_t domain = 0) {
  const auto wide_seed = static_cast<std::uint64_t>(seed);
  auto hash = murmur_mix(domain, static_cast<std::uint32_t>(wide_seed));
  hash = murmur_mix(hash, static_cast<std::uint32_t>(wide_seed >> 32U));
  return murmur_mix(hash, static_cast<std::uint32_t>(static_cast<std::uint64_t>(position)));
}

/// The rest of the hash, of the token.
template <typename Word>
PYVLLM_PP_INLINE Word murmur_finish(Word prefix, Word token) {
  Word hash = murmur_mix(prefix, token) ^ 16U;
  hash = (hash ^ hash >> 16U) * 0x85ebca6bU;
  hash = (hash ^ hash >> 13U) * 0xc2b2ae35U;
  return hash ^ hash >> 16U;
}

}  // namespace pyvllm_pp::kernels
