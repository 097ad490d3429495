#include <utility>

#include "pyvllm_pp/error.h"
#include "pyvllm_pp/tables.h"

namespace pyvllm_pp {
namespace {

constexpr std::string_view kRoom = "tables";
constexpr std::size_t kCacheLine = 64;

}  // namespace

ArenaRing::ArenaRing(std::size_t depth, std::size_t num_bytes) {
  constexpr auto kWordsPerLine = kCacheLine / sizeof(std::uint64_t);
  const auto words = (num_bytes + kCacheLine - 1) / kCacheLine * kWordsPerLine;
  memory_.resize(depth * words);
  arenas_.reserve(depth);
  for (std::size_t i = 0; i < depth; ++i) {
    arenas_.push_back(
        std::as_writable_bytes(std::span(memory_).subspan(i * words, words)).first(num_bytes));
  }
  check();
}

ArenaRing::ArenaRing(std::vector<std::span<std::byte>> arenas) : arenas_(std::move(arenas)) {
  check();
}

void ArenaRing::check() const {
  if (arenas_.size() < 2) {
    fail(kRoom, "ring depth is ", arenas_.size(), ", expected 2 or more");
  }
  for (const auto arena : arenas_) {
    if (arena.size() != arenas_.front().size()) {
      fail(kRoom, "arenas of ", arena.size(), " and ", arenas_.front().size(),
           " bytes in one ring, expected equal sizes");
    }
  }
}

std::span<std::byte> ArenaRing::next() {
  index_ = (index_ + 1) % arenas_.size();
  return arenas_[index_];
}

}  // namespace pyvllm_pp
