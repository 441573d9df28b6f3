/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's BPE by plait's own: of two neighbours that make a piece
 * together, those whose piece has the highest score are merged first. */
#include "config.h"

#include "runtime/data/tokenizer/spm_bpe.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/data/tokenizer/metaspace.h"
#include "runtime/data/tokenizer/unicode.h"

struct plait_spm_bpe {
    struct plait_bpe *bpe;
    struct plait_metaspace meta;
};

/* -- which models --------------------------------------------------------- */

/* The size of a text's first character. */
static size_t first_size(const char *text)
{
    size_t n;

    plait_utf8_decode((const unsigned char *)text, &n);
    return n;
}

/* The time to find what a piece is merged of grows with the square of its
 * size; usual ones have 16 characters at most. */
enum { PIECE_MOST = 1024 };

/* A control piece of one character would be found in texts. */
static bool is_usual_piece(const struct plait_spm_piece *piece)
{
    if (piece->size == 0 || piece->size > PIECE_MOST ||
        !isfinite(piece->score) ||
        plait_utf8_valid(piece->text, piece->size) < piece->size ||
        piece->type == PLAIT_SPM_USER_DEFINED ||
        piece->type == PLAIT_SPM_UNUSED)
        return false;
    return piece->type == PLAIT_SPM_NORMAL ||
           first_size(piece->text) < piece->size;
}

static bool is_usual(const struct plait_spm_proto *model)
{
    if (!model->is_bpe || !model->falls_back || model->normalizes ||
        model->npieces == 0 || model->npieces > INT_MAX / 2)
        return false;
    for (size_t i = 0; i < model->npieces; i++)
        if (!is_usual_piece(&model->pieces[i]))
            return false;
    return true;
}

/* -- merges --------------------------------------------------------------- */

/* The model's pieces as texts, with room for `nmerges` merges. NULL with
 * errno; EINVAL: the tokens of bytes are missing. */
static struct plait_bpe *make_texts(const struct plait_spm_proto *model,
                                    size_t nmerges)
{
    const struct plait_bpe_characters characters = {
        .used = true, .falls_back = true, .unknown = -1};
    struct plait_bpe *bpe = plait_bpe_create((int)model->npieces, nmerges);

    if (!bpe)
        return NULL;
    for (size_t i = 0; i < model->npieces; i++)
        if (plait_bpe_set_text(bpe, (int32_t)i, model->pieces[i].text,
                               model->pieces[i].size) < 0)
            goto error;
    plait_bpe_set_characters(bpe, &characters);
    if (plait_bpe_finish(bpe, false) == 0)
        return bpe;
error:
    plait_bpe_destroy(bpe);
    return NULL;
}

/* The id of a normal piece; -1: there is none. */
static int32_t find_normal(const struct plait_spm_proto *model,
                           const struct plait_bpe *texts, const char *text,
                           size_t size)
{
    int32_t id = plait_bpe_find(texts, text, size);

    return id >= 0 && model->pieces[id].type == PLAIT_SPM_NORMAL ? id : -1;
}

/* Whether each text is of one piece alone, and each character of a normal piece
 * is one too: the library would merge unknown characters to the piece
 * otherwise. */
static bool are_closed(const struct plait_spm_proto *model,
                       const struct plait_bpe *texts)
{
    const struct plait_spm_piece *piece;

    for (size_t i = 0; i < model->npieces; i++) {
        piece = &model->pieces[i];
        if (plait_bpe_find(texts, piece->text, piece->size) != (int32_t)i)
            return false;
        for (size_t at = 0, n;
             piece->type == PLAIT_SPM_NORMAL && at < piece->size; at += n) {
            n = first_size(piece->text + at);
            if (find_normal(model, texts, piece->text + at, n) < 0)
                return false;
        }
    }
    return true;
}

/* The pairs of normal pieces that make the piece `id`: their number, and `bpe`
 * gets them as merges of this rank unless it is NULL. -1 with errno. */
static int add_pairs(const struct plait_spm_proto *model,
                     const struct plait_bpe *texts, int32_t id, uint32_t rank,
                     struct plait_bpe *bpe)
{
    const struct plait_spm_piece *piece = &model->pieces[id];
    int32_t left, right;
    int count = 0;

    if (piece->type != PLAIT_SPM_NORMAL)
        return 0;
    for (size_t at = first_size(piece->text); at < piece->size;
         at += first_size(piece->text + at)) {
        left = find_normal(model, texts, piece->text, at);
        right = left < 0 ? -1
                         : find_normal(model, texts, piece->text + at,
                                       piece->size - at);
        if (right < 0)
            continue;
        if (bpe && plait_bpe_add_ranked(bpe, rank, left, right, id) < 0)
            return -1;
        count++;
    }
    return count;
}

struct scored {
    float score;
    int32_t id;
};

static int by_score(const void *a, const void *b)
{
    float x = ((const struct scored *)a)->score;
    float y = ((const struct scored *)b)->score;

    return (x < y) - (x > y);
}

/* Pieces of equal scores have equal ranks: of those the first in the text is
 * merged first. */
static int add_merges(const struct plait_spm_proto *model,
                      const struct plait_bpe *texts, struct plait_bpe *bpe)
{
    struct scored *order = malloc(model->npieces * sizeof(*order));
    uint32_t rank = 0;
    int rc = 0;

    if (!order)
        return -1;
    for (size_t i = 0; i < model->npieces; i++)
        order[i] = (struct scored){model->pieces[i].score, (int32_t)i};
    qsort(order, model->npieces, sizeof(*order), by_score);
    for (size_t i = 0; i < model->npieces && rc >= 0; i++) {
        rank += i > 0 && order[i].score < order[i - 1].score;
        rc = add_pairs(model, texts, order[i].id, rank, bpe);
    }
    free(order);
    return rc < 0 ? -1 : 0;
}

static struct plait_bpe *make_bpe(const struct plait_spm_proto *model)
{
    struct plait_bpe *texts = make_texts(model, 0), *bpe = NULL;
    size_t nmerges = 0;

    if (!texts)
        return NULL;
    errno = EINVAL;
    if (are_closed(model, texts)) {
        for (size_t i = 0; i < model->npieces; i++)
            nmerges += (size_t)add_pairs(model, texts, (int32_t)i, 0, NULL);
        bpe = make_texts(model, nmerges);
    }
    if (bpe && add_merges(model, texts, bpe) < 0) {
        plait_bpe_destroy(bpe);
        bpe = NULL;
    }
    plait_bpe_destroy(texts);
    return bpe;
}

/* -- a model -------------------------------------------------------------- */

int plait_spm_bpe_create(const struct plait_spm_proto *model,
                         struct plait_spm_bpe **out)
{
    const struct plait_added_tokens none = {0};
    struct plait_spm_bpe *b;

    *out = NULL;
    if (!is_usual(model))
        return 0;
    b = calloc(1, sizeof(*b));
    if (!b)
        return -1;
    b->bpe = make_bpe(model);
    if (!b->bpe) {
        free(b);
        return errno == EINVAL ? 0 : -1;
    }
    b->meta = (struct plait_metaspace){
        .used = true,
        .falls_back = true,
        .prepend = model->prepends ? PLAIT_PREPEND_ALWAYS : PLAIT_PREPEND_NONE};
    plait_metaspace_note_joins(&b->meta, b->bpe, (int)model->npieces, &none);
    if (b->meta.joins_lines) { /* texts are cut there */
        plait_spm_bpe_destroy(b);
        return 0;
    }
    *out = b;
    return 0;
}

void plait_spm_bpe_destroy(struct plait_spm_bpe *b)
{
    if (!b)
        return;
    plait_bpe_destroy(b->bpe);
    free(b);
}

void plait_spm_space_clear(struct plait_spm_space *space)
{
    plait_bpe_scratch_destroy(space->bpe);
    free(space->text.data);
    *space = (struct plait_spm_space){0};
}

int plait_spm_bpe_encode(const struct plait_spm_bpe *b,
                         struct plait_spm_space *space,
                         const struct plait_passage *passage,
                         struct plait_tokens *out)
{
    const char *text;
    size_t size, n;

    if (!space->bpe)
        space->bpe = plait_bpe_scratch_create();
    space->text.size = 0;
    if (!space->bpe ||
        (passage->size > 0 &&
         plait_metaspace_write(&b->meta, passage->text, passage->size,
                               passage->continued, !passage->continued,
                               &space->text) < 0))
        return -1;
    text = space->text.data;
    for (size = space->text.size; size > 0; text += n, size -= n) {
        n = plait_metaspace_next(&b->meta, false, text, size);
        if (plait_bpe_encode(b->bpe, space->bpe, (const unsigned char *)text, n,
                             out) < 0)
            return -1;
    }
    return 0;
}
