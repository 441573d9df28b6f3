// SPDX-License-Identifier: Apache-2.0
#include "spm.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <sentencepiece_processor.h>

// No exception leaves this file: what the library throws is that memory is
// short.

struct plait_spm {
    sentencepiece::SentencePieceProcessor model;
};

// What is encoded at a time: the library wants many times the size of a text
// in memory.
static const size_t part_size = 1 << 20;

static int out_of_memory(struct plait_error *err)
{
    errno = ENOMEM;
    return plait_errorf(err, "tokenizer: out of memory");
}

static int failed(const char *what, const sentencepiece::util::Status &status,
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

struct plait_spm *plait_spm_create(const char *path, struct plait_error *err)
{
    try {
        auto spm = std::make_unique<plait_spm>();

        return open_model(spm.get(), path, err) < 0 ? nullptr : spm.release();
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

// The end of a part: after its last line break, if it has one.
static size_t part_end(const char *text, size_t size)
{
    const void *line;

    if (size <= part_size)
        return size;
    line = memrchr(text, '\n', part_size);
    return line ? static_cast<const char *>(line) - text + 1 : part_size;
}

static int encode(const struct plait_spm *spm, const char *text, size_t size,
                  std::vector<int> &all, struct plait_error *err)
{
    std::vector<int> part;
    size_t n;

    for (; size > 0; text += n, size -= n) {
        n = part_end(text, size);
        const auto status = spm->model.Encode({text, n}, &part);
        if (!status.ok())
            return failed("encode the text", status, err);
        all.insert(all.end(), part.begin(), part.end());
    }
    return 0;
}

int plait_spm_encode(const struct plait_spm *spm, const char *text, size_t size,
                     int32_t **tokens, size_t *ntokens, struct plait_error *err)
{
    try {
        std::vector<int> all;

        if (encode(spm, text, size, all, err) < 0)
            return -1;
        auto *out =
            static_cast<int32_t *>(malloc((all.size() + 1) * sizeof(int32_t)));
        if (!out)
            return out_of_memory(err);
        std::copy(all.begin(), all.end(), out);
        *tokens = out;
        *ntokens = all.size();
        return 0;
    } catch (const std::bad_alloc &) {
        return out_of_memory(err);
    }
}

int plait_spm_decode(const struct plait_spm *spm, const int32_t *tokens,
                     size_t ntokens, char **text, size_t *size,
                     struct plait_error *err)
{
    try {
        const std::vector<int> all(tokens, tokens + ntokens);
        std::string out;
        const auto status = spm->model.Decode(all, &out);

        if (!status.ok())
            return failed("decode", status, err);
        *text = static_cast<char *>(malloc(out.size() + 1));
        if (!*text)
            return out_of_memory(err);
        memcpy(*text, out.c_str(), out.size() + 1);
        *size = out.size();
        return 0;
    } catch (const std::bad_alloc &) {
        return out_of_memory(err);
    }
}
