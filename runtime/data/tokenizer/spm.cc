// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/tokenizer/spm.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

// No exception leaves this file. The library throws only where memory lacks.

// How a model encodes the end of a line. Found by encoding one.
enum line_end {
    LINE_END_TOKEN, // a token of its own, as in Llama's
    LINE_END_SPACE, // as a blank at the beginning of a word, else as nothing
    LINE_END_BLANK, // as a blank, which several in a row and the last one keep
    LINE_END_OTHER
};

struct plait_spm {
    sentencepiece::SentencePieceProcessor model;
    enum line_end line_end;
    std::vector<int> lead; // the tokens of a text of one line break
};

// Bytes to encode at once: a part ends after the last line break within
// part_size bytes, else after the first one beyond, and at part_most at the
// latest.
static const size_t part_size = 1 << 10, part_most = 1 << 20;

static int out_of_memory(struct plait_error *err)
{
    errno = ENOMEM;
    return plait_errorf(err, "tokenizer: out of memory");
}

static int report_failure(const char *what,
                          const sentencepiece::util::Status &status,
                          struct plait_error *err)
{
    errno = EINVAL;
    return plait_errorf(err, "tokenizer: cannot %s: %.300s", what,
                        status.error_message());
}

static int open_model(struct plait_spm *spm, const char *path,
                      struct plait_error *err)
{
    const auto status = spm->model.Load(path);

    errno = EINVAL;
    if (!status.ok())
        return plait_errorf(err,
                            "spm:%s: not a SentencePiece model that can be "
                            "read: %.300s",
                            path, status.error_message());
    if (spm->model.eos_id() < 0)
        return plait_errorf(err,
                            "spm:%s: has no end of sentence, which ends a "
                            "text: train it with one (--eos_id)",
                            path);
    return 0;
}

// A part that begins after a line break is encoded with that line break in
// front, as it would otherwise get the blank that begins a text. The tokens of
// the line break are removed again.
static void find_line_end(struct plait_spm *spm)
{
    const auto a = spm->model.EncodeAsIds("a"), b = spm->model.EncodeAsIds("b");
    const auto both = spm->model.EncodeAsIds("a\nb");
    auto apart = a;

    spm->line_end = LINE_END_OTHER;
    apart.insert(apart.end(), b.begin(), b.end());
    if (both == apart) {
        spm->line_end = spm->model.EncodeAsIds("a\n") == a ? LINE_END_SPACE
                                                           : LINE_END_BLANK;
        return;
    }
    spm->lead = spm->model.EncodeAsIds("\n");
    if (spm->lead.empty() || spm->model.IsUnknown(spm->lead.back()))
        return;
    for (int i = 0; i < spm->model.GetPieceSize(); i++) {
        const auto &piece = spm->model.IdToPiece(i);

        if (piece.size() > 1 && piece.find('\n') != piece.npos)
            return;
    }
    if (spm->model.IsByte(spm->lead.back()) ||
        spm->model.IdToPiece(spm->lead.back()) == "\n")
        spm->line_end = LINE_END_TOKEN;
}

struct plait_spm *plait_spm_create(const char *path, struct plait_error *err)
{
    try {
        auto spm = std::make_unique<plait_spm>();

        if (open_model(spm.get(), path, err) < 0)
            return nullptr;
        find_line_end(spm.get());
        return spm.release();
    } catch (const std::bad_alloc &) {
        out_of_memory(err);
        return nullptr;
    }
}

void plait_spm_destroy(struct plait_spm *spm)
{
    delete spm;
}

int plait_spm_vocab(const struct plait_spm *spm)
{
    return spm->model.GetPieceSize();
}

int32_t plait_spm_end(const struct plait_spm *spm)
{
    return spm->model.eos_id();
}

int plait_spm_bytes(const struct plait_spm *spm, struct plait_buffer *out)
{
    try {
        const std::string bytes = spm->model.serialized_model_proto();

        return plait_buffer_add(out, bytes.data(), bytes.size());
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
        return -1;
    }
}

bool plait_spm_has(const struct plait_spm *spm, int64_t id, const char *token)
{
    return id >= 0 && id < spm->model.GetPieceSize() &&
           spm->model.IdToPiece(static_cast<int>(id)) == token;
}

static bool is_blank(char c)
{
    return c && strchr(" \t\r\n\v\f", c);
}

// Whether text[at] is a line break between two characters that are not white
// space. A text can be cut at such ones, because a model may join several
// blanks.
static bool is_lone_break(const char *text, size_t size, size_t at)
{
    return text[at] == '\n' && at > 0 && at + 1 < size &&
           !is_blank(text[at - 1]) && !is_blank(text[at + 1]);
}

// With LINE_END_BLANK a line break goes with what comes after it, which would
// get a blank in front in any case.
size_t plait_spm_cut(const struct plait_spm *spm, const char *text, size_t size)
{
    for (size_t at = size; at-- > 1;)
        if (is_lone_break(text, size, at))
            return spm->line_end == LINE_END_BLANK ? at : at + 1;
    return 0;
}

// At most part_most bytes, and no part of a character.
static size_t longest_part(const char *text, size_t size)
{
    size_t most = part_most;

    if (size <= most)
        return size;
    while (most > 1 && (text[most] & 0xc0) == 0x80)
        most--;
    return most;
}

static size_t blank_part_end(const char *text, size_t size, size_t most)
{
    size_t at = 0;

    while (at < most && !is_lone_break(text, size, at))
        at++;
    return at;
}

// Returns the end of the part that begins at `text`.
static size_t part_end(const struct plait_spm *spm, const char *text,
                       size_t size)
{
    const size_t least = spm->line_end == LINE_END_OTHER   ? part_most
                         : spm->line_end == LINE_END_SPACE ? 1
                                                           : part_size;
    const size_t most = longest_part(text, size);
    const void *line;

    if (spm->line_end == LINE_END_BLANK)
        return blank_part_end(text, size, most);
    if (size <= least)
        return size;
    line = memrchr(text, '\n', least);
    if (!line)
        line = memchr(text + least, '\n', most - least);
    return line ? static_cast<const char *>(line) - text + 1 : most;
}

static int add_part(const struct plait_spm *spm, const char *text, size_t size,
                    bool continued, struct plait_tokens *out,
                    struct plait_error *err)
{
    const bool leads = continued && spm->line_end == LINE_END_TOKEN;
    std::vector<int> part;
    std::string line;
    size_t skip = 0;

    if (continued && spm->line_end == LINE_END_BLANK && text[0] == '\n') {
        text++;
        size--;
    }
    if (leads) {
        line.reserve(size + 1);
        line.append("\n").append(text, size);
        skip = spm->lead.size();
    }
    const auto status = leads ? spm->model.Encode(line, &part)
                              : spm->model.Encode({text, size}, &part);
    if (!status.ok())
        return report_failure("encode the text", status, err);
    skip = skip < part.size() ? skip : part.size();
    if (plait_tokens_reserve(out, part.size()) < 0)
        return out_of_memory(err);
    std::copy(part.begin() + skip, part.end(), out->id + out->count);
    out->count += part.size() - skip;
    return 0;
}

int plait_spm_encode(const struct plait_spm *spm, const char *text, size_t size,
                     bool continued, struct plait_tokens *out,
                     struct plait_error *err)
{
    size_t n;

    try {
        for (; size > 0; text += n, size -= n) {
            n = part_end(spm, text, size);
            if (add_part(spm, text, n, continued, out, err) < 0)
                return -1;
            continued = spm->line_end == LINE_END_BLANK || text[n - 1] == '\n';
        }
        return 0;
    } catch (const std::bad_alloc &) {
        return out_of_memory(err);
    }
}

int plait_spm_decode(const struct plait_spm *spm, const int32_t *tokens,
                     size_t ntokens, struct plait_buffer *out,
                     struct plait_error *err)
{
    try {
        const std::vector<int> all(tokens, tokens + ntokens);
        std::string text;
        const auto status = spm->model.Decode(all, &text);

        if (!status.ok())
            return report_failure("decode", status, err);
        if (plait_buffer_add(out, text.data(), text.size()) < 0)
            return out_of_memory(err);
        return 0;
    } catch (const std::bad_alloc &) {
        return out_of_memory(err);
    }
}
