/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/convert/megatron_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows [row, row + n) of a tensor of `cols` columns, and where they go. */
struct wanted {
    uint64_t row, n, cols;
    float *out;
};

/* Read those of the wanted rows that a piece has; `numbers` has room for the
 * piece's. */
static int read_piece(const struct plait_megatron_source *m,
                      const struct plait_megatron_piece *piece,
                      const struct wanted *w, float *numbers,
                      struct plait_error *err)
{
    uint64_t begin = piece->row > w->row ? piece->row : w->row;
    uint64_t end = piece->row + piece->rows < w->row + w->n
                       ? piece->row + piece->rows
                       : w->row + w->n;

    if (begin >= end)
        return 0;
    if (m->read(m->from, piece->stored, piece->at + begin - piece->row,
                end - begin, numbers, err) < 0)
        return -1;
    for (uint64_t r = 0; r < end - begin; r++)
        memcpy(w->out + (begin - w->row + r) * w->cols + piece->col,
               numbers + r * piece->cols, piece->cols * sizeof(*w->out));
    return 0;
}

/* A vector is one row of Plait's tensor, and a column of the stored one. */
static int read_rows(const void *from, int index, uint64_t row, uint64_t n,
                     float *out, struct plait_error *err)
{
    const struct plait_megatron_source *m = from;
    const struct plait_hf_tensor *t = &m->map->tensors[index];
    const struct wanted w = {.row = t->vector ? 0 : row,
                             .n = t->vector ? t->cols : n,
                             .cols = t->vector ? 1 : t->cols,
                             .out = out};
    float *numbers = malloc(w.n * w.cols * sizeof(*numbers));
    int rc = 0;

    if (!numbers)
        return plait_errorf(err, "%s: out of memory", m->path);
    for (int i = m->map->pieces_of[index]; i >= 0 && rc == 0;
         i = m->map->pieces[i].next)
        rc = read_piece(m, &m->map->pieces[i], &w, numbers, err);
    free(numbers);
    return rc;
}

/* The most is that of the keys of plait.yaml. */
static int check_rate(const struct plait_megatron_source *m, const char *name,
                      double rate, struct plait_error *err)
{
    if (rate >= 0 && rate <= 0.999)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: its argument %s is %g; it must be from 0 to 0.999",
                        m->path, name, rate);
}

static void note_dropout(const struct plait_model_config *m,
                         struct plait_converted *done)
{
    if (m->dropout > 0 || m->attention_dropout > 0)
        snprintf(done->dropout, sizeof(done->dropout),
                 "the model trains with dropout, as it did: model.dropout %g, "
                 "model.attention_dropout %g",
                 m->dropout, m->attention_dropout);
}

int plait_megatron_import(const struct plait_megatron_source *m,
                          const char *dir, struct plait_converted *done,
                          struct plait_error *err)
{
    struct plait_convert_source source = {
        .model = &m->args->model, .read = read_rows, .from = m};
    int rc;

    if (check_rate(m, "hidden_dropout", source.model->dropout, err) < 0 ||
        check_rate(m, "attention_dropout", source.model->attention_dropout,
                   err) < 0)
        return -1;
    rc = plait_convert_import_map(&source, m->map->tensors, m->map->ntensors,
                                  dir, done, err);
    if (rc == 0)
        note_dropout(source.model, done);
    return rc;
}
