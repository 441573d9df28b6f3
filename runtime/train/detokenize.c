/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/detokenize.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/world.h"

/* -- the prompt ---------------------------------------------------------- */

static int open_tokenizer(struct plait_detokenizer *d, const char *spec,
                          const char *data, int vocab, struct plait_error *err)
{
    d->vocab = vocab;
    err->text[0] = '\0';
    if (!spec && data && (d->tokenizer = plait_tokenizer_beside(data, err)))
        spec = data;
    else if (!spec && err->text[0])
        return -1;
    if (!spec && vocab == PLAIT_BYTE_VOCAB)
        spec = "byte";
    if (!spec)
        return 0;
    if (!d->tokenizer)
        d->tokenizer = plait_tokenizer_create(spec, err);
    if (!d->tokenizer)
        return -1;
    d->vocab = plait_tokenizer_vocab(d->tokenizer);
    if (d->vocab <= vocab)
        return 0;
    return plait_errorf(err,
                        "the tokenizer %s has %d tokens, model.vocab is %d",
                        spec, d->vocab, vocab);
}

static int encode_prompt(const struct plait_detokenizer *d, const char *prompt,
                         int32_t **tokens, size_t *n, struct plait_error *err)
{
    *tokens = NULL;
    *n = 0;
    if (prompt && !d->tokenizer)
        return plait_errorf(err,
                            "--sample-prompt needs --tokenizer spm:FILE "
                            "or bpe:FILE: "
                            "model.vocab %d is not that of bytes (%d)",
                            d->vocab, PLAIT_BYTE_VOCAB);
    if (prompt && plait_tokenizer_encode(d->tokenizer, prompt, strlen(prompt),
                                         tokens, n, err) < 0)
        return -1;
    if (*n > 0)
        return 0;
    free(*tokens);
    *tokens = malloc(sizeof(**tokens));
    if (!*tokens)
        return plait_errorf(err, "out of memory");
    **tokens = d->tokenizer ? plait_tokenizer_end(d->tokenizer) : 0;
    *n = 1;
    return 0;
}

int plait_detokenizer_open(struct plait_detokenizer *d,
                           struct plait_comm *world, const char *spec,
                           const char *data, const char *prompt, int vocab,
                           struct plait_error *err)
{
    size_t size = 0;
    char *text = NULL;
    int rc = 0;

    memset(d, 0, sizeof(*d));
    if (plait_comm_rank(world) == 0) {
        rc = open_tokenizer(d, spec, data, vocab, err);
        if (rc == 0)
            rc = encode_prompt(d, prompt, &d->prompt, &d->nprompt, err);
        text = (char *)d->prompt;
        size = d->nprompt * sizeof(*d->prompt);
        d->prompt = NULL;
    }
    if (plait_broadcast_text(world, rc, &text, &size, err) < 0)
        goto error;
    d->prompt = (int32_t *)(void *)text;
    d->nprompt = size / sizeof(*d->prompt);
    if (plait_comm_host_broadcast(world, &d->vocab, sizeof(d->vocab), 0) == 0)
        return 0;
    plait_errorf(err, "%s", plait_comm_error(world));
error:
    plait_detokenizer_close(d);
    return -1;
}

void plait_detokenizer_close(struct plait_detokenizer *d)
{
    plait_tokenizer_destroy(d->tokenizer);
    free(d->prompt);
    d->tokenizer = NULL;
    d->prompt = NULL;
}

/* -- what comes ---------------------------------------------------------- */

/* Bytes that are no letter yet are decoded as U+FFFD. */
static bool is_half(const char *text, size_t size)
{
    return size >= 3 && !memcmp(text + size - 3, "\xef\xbf\xbd", 3);
}

/* Print what the pending tokens are beyond what is printed. */
static int print_text(struct plait_detokenizer *d, bool all, FILE *out,
                      struct plait_error *err)
{
    char *text;
    size_t size;

    if (plait_tokenizer_decode(d->tokenizer, d->pending, d->npending, &text,
                               &size, err) < 0)
        return -1;
    if (size > d->printed && (all || !is_half(text, size))) {
        fwrite(text + d->printed, 1, size - d->printed, out);
        d->printed = size;
    }
    free(text);
    return 0;
}

/* All is printed: the last token is enough for the next one to stand on. */
static int shorten_pending(struct plait_detokenizer *d, struct plait_error *err)
{
    char *text;

    d->pending[0] = d->pending[d->npending - 1];
    d->npending = 1;
    if (plait_tokenizer_decode(d->tokenizer, d->pending, 1, &text, &d->printed,
                               err) < 0)
        return -1;
    free(text);
    return 0;
}

int plait_detokenizer_put(struct plait_detokenizer *d, int32_t token, FILE *out,
                          struct plait_error *err)
{
    int rc = 0;

    if (!d->tokenizer) {
        fprintf(out, " %d", token);
    } else if (token == plait_tokenizer_end(d->tokenizer)) {
        rc = plait_detokenizer_end(d, out, err);
    } else {
        d->pending[d->npending++] = token;
        rc = print_text(d, d->npending == PLAIT_DETOKENIZE_PENDING, out, err);
        if (rc == 0 && d->npending == PLAIT_DETOKENIZE_PENDING)
            rc = shorten_pending(d, err);
    }
    fflush(out);
    return rc;
}

int plait_detokenizer_end(struct plait_detokenizer *d, FILE *out,
                          struct plait_error *err)
{
    int rc = d->tokenizer ? print_text(d, true, out, err) : 0;

    d->npending = 0;
    d->printed = 0;
    fputc('\n', out);
    return rc;
}
