#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "pyvllm_pp/batch.h"
#include "pyvllm_pp/error.h"

/// The two loops of a post over a batch's requests, private to the feedback room.
namespace pyvllm_pp {

inline constexpr std::string_view kFeedbackRoom = "feedback";

inline void check_length(std::string_view what, std::size_t length, std::size_t expected) {
  if (length != expected) {
    fail(kFeedbackRoom, what, " has ", length, " entries, expected ", expected);
  }
}

/// `mask` as bools or bytes, of the right length.
template <typename Flag>
std::int32_t write_need_sampled(const BatchView& batch, std::span<const std::int32_t> max_seq_len,
                                std::span<Flag> mask) {
  // Copies of the spans: a byte that is written could be part of anything behind a reference.
  const auto [num_scheduled_tokens, is_prefilling, unused] = batch.scheduled;
  const auto num_computed = batch.num_computed_tokens;
  const auto prefill_lens = batch.prefill_len;
  const auto num_reqs = mask.size();
  check_length("num_scheduled_tokens", num_scheduled_tokens.size(), num_reqs);
  check_length("is_prefilling", is_prefilling.size(), num_reqs);
  check_length("num_computed_tokens", num_computed.size(), num_reqs);
  check_length("prefill_len", prefill_lens.size(), num_reqs);
  if (!max_seq_len.empty()) {
    check_length("max_seq_len", max_seq_len.size(), num_reqs);
  }
  std::int32_t count = 0;
  for (std::size_t i = 0; i < num_reqs; ++i) {
    // Both are 0 or more, so the difference is an int32: half as wide as the sum would be.
    const auto missing = static_cast<std::int32_t>(static_cast<std::uint32_t>(prefill_lens[i]) -
                                                   static_cast<std::uint32_t>(num_computed[i]));
    const bool samples = missing <= num_scheduled_tokens[i];
    mask[i] = static_cast<Flag>(samples);
    count += static_cast<std::int32_t>(samples);
  }
  if (max_seq_len.empty()) {
    return count;
  }
  for (std::size_t i = 0; i < num_reqs; ++i) {
    if (is_prefilling[i] && std::int64_t{prefill_lens[i]} + 1 >= max_seq_len[i]) {
      count -= static_cast<std::int32_t>(mask[i]);
      mask[i] = Flag{};
    }
  }
  return count;
}

/// FNV-1a over one word a request, in four lanes that do not wait for each other. A word is slot
/// and generation beside each other, tokens spread over both.
template <typename GenerationOf>
std::int64_t digest_of(std::span<const std::int64_t> idx_mapping,
                       std::span<const std::int32_t> num_scheduled_tokens,
                       GenerationOf generation_of) {
  constexpr std::size_t kNumLanes = 4;
  constexpr std::uint64_t kOffset = 0xcbf29ce484222325;
  constexpr std::uint64_t kPrime = 0x100000001b3;
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;
  const auto word = [=](std::size_t i) {
    const std::uint64_t generation = static_cast<std::uint32_t>(generation_of(i));
    const std::uint64_t tokens = static_cast<std::uint32_t>(num_scheduled_tokens[i]);
    return static_cast<std::uint64_t>(idx_mapping[i]) ^ (generation << 32U) ^ (tokens * kSpread);
  };
  std::array<std::uint64_t, kNumLanes> lanes;
  lanes.fill(kOffset);
  const auto num_reqs = idx_mapping.size();
  const auto num_whole = num_reqs - num_reqs % kNumLanes;
  for (std::size_t i = 0; i < num_whole; i += kNumLanes) {
    for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
      lanes[lane] = (lanes[lane] ^ word(i + lane)) * kPrime;
    }
  }
  for (std::size_t i = num_whole; i < num_reqs; ++i) {
    lanes[i % kNumLanes] = (lanes[i % kNumLanes] ^ word(i)) * kPrime;
  }
  auto hash = kOffset;
  for (const auto lane : lanes) {
    hash = (hash ^ lane) * kPrime;
  }
  hash = (hash ^ (hash >> 33U)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33U)) * 0xc4ceb9fe1a85ec53;
  return static_cast<std::int64_t>(hash ^ (hash >> 33U));
}

}  // namespace pyvllm_pp
