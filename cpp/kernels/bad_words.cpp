#include <algorithm>

#include "logits.h"

namespace pyvllm_pp::kernels {
namespace {

constexpr std::string_view kBadWords = "bad_words";

/// What a request has generated before one of its rows: committed tokens, then drafts.
struct Generated {
  const BadWords& in;
  std::int64_t slot;
  std::int64_t num_committed;
  std::int64_t num_drafts;
  std::int64_t first_row;  // of the request

  [[nodiscard]] std::int64_t size() const { return num_committed + num_drafts; }
  [[nodiscard]] std::int64_t operator[](std::int64_t i) const {
    // The request's first row holds its last committed token, drafts follow.
    return i < num_committed ? in.all_token_ids.at(slot, in.prompt_len[slot] + i)
                             : in.input_ids[first_row + i - num_committed + 1];
  }
};

Generated generated(const BadWords& in, std::int64_t row, std::int64_t slot) {
  const auto position = in.local_pos[row];
  return {.in = in,
          .slot = slot,
          .num_committed = in.total_len[slot] - in.prompt_len[slot],
          .num_drafts = position,
          .first_row = row - position};
}

struct Word {
  std::int64_t start;
  std::int64_t size;
};

Word word_of(const BadWords& in, std::int64_t slot, std::int64_t i) {
  const auto start = in.offsets.at(slot, i);
  return {start, in.offsets.at(slot, i + 1) - start};
}

/// Whether the text so far ends with all of a word but its last token.
bool is_next(const Generated& text, const Word& word) {
  const auto prefix = word.size - 1;
  const auto from = text.size() - prefix;
  if (from < 0) {
    return false;
  }
  for (std::int64_t i = 0; i < prefix; ++i) {
    if (text.in.tokens.at(text.slot, word.start + i) != text[from + i]) {
      return false;
    }
  }
  return true;
}

std::int64_t num_words(const BadWords& in, std::int64_t slot) {
  return std::min(in.num_words[slot], in.max_num_words);
}

void check_row(const BadWords& in, std::int64_t row, std::int64_t slot) {
  const auto text = generated(in, row, slot);
  check_range(kBadWords, "all_token_ids", slot * in.all_token_ids.stride + in.prompt_len[slot],
              text.num_committed, in.all_token_ids.flat.size());
  if (text.num_drafts != 0) {
    check_range(kBadWords, "input_ids", text.first_row, text.num_drafts + 1, in.input_ids.size());
  }
  for (std::int64_t i = 0; i < num_words(in, slot); ++i) {
    const auto [start, size] = word_of(in, slot, i);
    if (size < 1) {
      fail(kBadWords, "word ", i, " of slot ", slot, " has ", size, " tokens, expected 1 or more");
    }
    check_range(kBadWords, "bad_word_token_ids", slot * in.tokens.stride + start, size,
                in.tokens.flat.size());
  }
}

void check(const Logits& logits, const BadWords& in, std::int64_t num_rows) {
  logits.check(kBadWords, num_rows);
  check_below(kBadWords, "idx_mapping", in.idx_mapping, num_rows,
              std::min({in.num_words.size(), in.prompt_len.size(), in.total_len.size()}));
  check_range(kBadWords, "expanded_local_pos", 0, num_rows, in.local_pos.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot >= 0 && num_words(in, slot) > 0) {
      check_range(kBadWords, "bad_word_offsets", slot * in.offsets.stride, num_words(in, slot) + 1,
                  in.offsets.flat.size());
      check_row(in, row, slot);
    }
  }
}

}  // namespace

void apply_bad_words(const Logits& logits, const BadWords& in, std::int64_t num_rows) {
  check(logits, in, num_rows);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto slot = in.idx_mapping[row];
    if (slot < 0) {
      continue;
    }
    const auto text = generated(in, row, slot);
    for (std::int64_t i = 0; i < num_words(in, slot); ++i) {
      const auto word = word_of(in, slot, i);
      const auto token = in.tokens.at(slot, word.start + word.size - 1);
      if (token >= 0 && token < logits.vocab_size && is_next(text, word)) {
        logits.visit(row, [&]<typename T>(T* data) { data[token] = from_float<T>(-kInfinity); });
      }
    }
  }
}

}  // namespace pyvllm_pp::kernels
