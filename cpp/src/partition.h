#pragma once

#include <cstddef>
#include <cstdint>

/// Shared by the policies, private to the plan room.
namespace pyvllm_pp {

/// Owners of a request other than one rank.
inline constexpr std::int32_t kEveryRank = -1;
inline constexpr std::int32_t kSplit = -2;

inline std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

}  // namespace pyvllm_pp
