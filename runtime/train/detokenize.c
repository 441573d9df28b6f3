/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/words.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/world.h"

/* -- the prompt ---------------------------------------------------------- */

static int open_tokenizer(struct plait_words *w, const char *spec, int vocab,
                          struct plait_error *err)
{
    w->vocab = vocab;
    if (!spec && vocab == PLAIT_BYTE_VOCAB)
        spec = "byte";
    if (!spec)
        return 0;
    w->tokenizer = plait_tokenizer_create(spec, err);
    if (!w->tokenizer)
        return -1;
    w->vocab = plait_tokenizer_vocab(w->tokenizer);
    if (w->vocab <= vocab)
        return 0;
    return plait_errorf(err, "--tokenizer %s has %d tokens, model.vocab is %d",
                        spec, w->vocab, vocab);
}

static int encode(const struct plait_words *w, const char *prompt,
                  int32_t **tokens, size_t *n, struct plait_error *err)
{
    *tokens = NULL;
    *n = 0;
    if (prompt && !w->tokenizer)
        return plait_errorf(err,
                            "--sample-prompt wants --tokenizer spm:FILE: "
                            "model.vocab %d is not that of bytes (%d)",
                            w->vocab, PLAIT_BYTE_VOCAB);
    if (prompt && plait_tokenizer_encode(w->tokenizer, prompt, strlen(prompt),
                                         tokens, n, err) < 0)
        return -1;
    if (*n > 0)
        return 0;
    free(*tokens);
    *tokens = malloc(sizeof(**tokens));
    if (!*tokens)
        return plait_errorf(err, "out of memory");
    **tokens = w->tokenizer ? plait_tokenizer_end(w->tokenizer) : 0;
    *n = 1;
    return 0;
}

int plait_words_open(struct plait_words *w, struct plait_comm *world,
                     const char *spec, const char *prompt, int vocab,
                     struct plait_error *err)
{
    size_t size = 0;
    char *text = NULL;
    int rc = 0;

    memset(w, 0, sizeof(*w));
    if (plait_comm_rank(world) == 0) {
        rc = open_tokenizer(w, spec, vocab, err);
        if (rc == 0)
            rc = encode(w, prompt, &w->prompt, &w->nprompt, err);
        text = (char *)w->prompt;
        size = w->nprompt * sizeof(*w->prompt);
        w->prompt = NULL;
    }
    if (plait_hand_out(world, rc, &text, &size, err) < 0)
        goto error;
    w->prompt = (int32_t *)(void *)text;
    w->nprompt = size / sizeof(*w->prompt);
    if (plait_comm_host_broadcast(world, &w->vocab, sizeof(w->vocab), 0) == 0)
        return 0;
    plait_errorf(err, "%s", plait_comm_error(world));
error:
    plait_words_close(w);
    return -1;
}

void plait_words_close(struct plait_words *w)
{
    plait_tokenizer_destroy(w->tokenizer);
    free(w->prompt);
    w->tokenizer = NULL;
    w->prompt = NULL;
}

/* -- what comes ---------------------------------------------------------- */

/* Bytes that are no letter yet are decoded as U+FFFD. */
static bool is_half(const char *text, size_t size)
{
    return size >= 3 && !memcmp(text + size - 3, "\xef\xbf\xbd", 3);
}

/* Print what the pending tokens are beyond what is printed. */
static int print(struct plait_words *w, bool all, FILE *out,
                 struct plait_error *err)
{
    char *text;
    size_t size;

    if (plait_tokenizer_decode(w->tokenizer, w->pending, w->npending, &text,
                               &size, err) < 0)
        return -1;
    if (size > w->printed && (all || !is_half(text, size))) {
        fwrite(text + w->printed, 1, size - w->printed, out);
        w->printed = size;
    }
    free(text);
    return 0;
}

/* All is printed: the last token is enough for the next one to stand on. */
static int shorten(struct plait_words *w, struct plait_error *err)
{
    char *text;

    w->pending[0] = w->pending[w->npending - 1];
    w->npending = 1;
    if (plait_tokenizer_decode(w->tokenizer, w->pending, 1, &text, &w->printed,
                               err) < 0)
        return -1;
    free(text);
    return 0;
}

int plait_words_put(struct plait_words *w, int32_t token, FILE *out,
                    struct plait_error *err)
{
    int rc = 0;

    if (!w->tokenizer) {
        fprintf(out, " %d", token);
    } else if (token == plait_tokenizer_end(w->tokenizer)) {
        rc = plait_words_end(w, out, err);
    } else {
        w->pending[w->npending++] = token;
        rc = print(w, w->npending == PLAIT_WORDS_PENDING, out, err);
        if (rc == 0 && w->npending == PLAIT_WORDS_PENDING)
            rc = shorten(w, err);
    }
    fflush(out);
    return rc;
}

int plait_words_end(struct plait_words *w, FILE *out, struct plait_error *err)
{
    int rc = w->tokenizer ? print(w, true, out, err) : 0;

    w->npending = 0;
    w->printed = 0;
    fputc('\n', out);
    return rc;
}
