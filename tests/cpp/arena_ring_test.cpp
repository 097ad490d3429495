#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "pyvllm_pp/tables.h"
#include "support/batches.h"
#include "support/errors.h"
#include "support/steps.h"

namespace pyvllm_pp {
namespace {

using testing::copy;
using testing::decode;
using testing::invalid;
using testing::Memory;
using testing::OwnedBatch;
using testing::pcp;
using testing::prompt;
using testing::RankStep;

TEST(ArenaRing, HandsOutEachArenaInTurn) {
  ArenaRing ring(3, 100);
  std::set<std::byte*> seen;
  for (int i = 0; i < 3; ++i) {
    const auto arena = ring.next();
    EXPECT_EQ(arena.size(), 100U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % alignof(std::int64_t), 0U);
    seen.insert(arena.data());
  }
  EXPECT_EQ(seen.size(), 3U);
  EXPECT_EQ(ring.depth(), 3U);
  EXPECT_TRUE(seen.contains(ring.next().data()));
}

TEST(ArenaRing, ReturnsTheArenaHandedOutLongestAgo) {
  ArenaRing ring(2, 8);
  const auto* first = ring.next().data();
  const auto index = ring.index();
  EXPECT_NE(ring.next().data(), first);
  EXPECT_EQ(ring.next().data(), first);
  EXPECT_EQ(ring.index(), index);
}

TEST(ArenaRing, MemoryStaysUntouchedForDepthMinusOneSteps) {
  constexpr std::size_t kDepth = 4;
  ArenaRing ring(kDepth, device_arena_bytes(pcp(2)));
  RankStep step(pcp(2));
  std::vector<std::vector<std::int64_t>> written;
  std::vector<std::span<const std::int64_t>> kept;
  for (std::int32_t length = 1; length < 30; ++length) {
    const OwnedBatch batch({decode(), prompt(length)});
    const auto& plan = step.planner.plan(batch.scheduled());
    step.writer.write(plan, batch.view(), step.writer.sizes(plan, {}), ring.next(),
                      step.host_memory.span());
    kept.emplace_back(step.device().hidden_restore_idx);
    written.push_back(copy(kept.back()));
    const auto oldest = kept.size() > kDepth ? kept.size() - kDepth : 0;
    for (auto i = oldest; i < kept.size(); ++i) {
      ASSERT_EQ(copy(kept[i]), written[i]) << "written " << kept.size() - i << " steps ago";
    }
  }
}

TEST(ArenaRing, UsesMemoryOfTheCaller) {
  Memory first(64);
  Memory second(64);
  ArenaRing ring({first.span(), second.span()});
  EXPECT_EQ(ring.next().data(), second.span().data());
  EXPECT_EQ(ring.next().data(), first.span().data());
}

TEST(ArenaRing, RefusesADepthBelowTwo) {
  EXPECT_EQ(invalid([] { ArenaRing ring(1, 8); }), "[tables] ring depth is 1, expected 2 or more");
  EXPECT_EQ(invalid([] { ArenaRing ring({}); }), "[tables] ring depth is 0, expected 2 or more");
}

TEST(ArenaRing, RefusesUnequalArenas) {
  Memory first(64);
  Memory second(32);
  EXPECT_EQ(invalid([&] { ArenaRing ring({first.span(), second.span()}); }),
            "[tables] arenas of 32 and 64 bytes in one ring, expected equal sizes");
}

}  // namespace
}  // namespace pyvllm_pp
