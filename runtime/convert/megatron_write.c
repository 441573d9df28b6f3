/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a checkpoint of Megatron-LM: a pickle of torch.save's for each rank of
 * the tp and pp that were asked for. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/convert/convert_rows.h"
#include "runtime/convert/megatron.h"
#include "runtime/convert/megatron_args.h"
#include "runtime/convert/torch_out.h"
#include "topology/job/mup.h"

#define STEM "model_optim_rng"
#define MULTIPLE 128 /* --make-vocab-size-divisible-by, for each tp rank */

struct export
{
    struct plait_sources from;
    const char *dir;
    enum plait_dtype type;
    struct plait_megatron_args args;
    struct plait_megatron_map *map;
};

/* The pickle from which torch.load rebuilds the file, without the numbers. */
static void put_pickle(const struct export *ex, int file,
                       struct plait_pickle_out *out)
{
    const struct plait_megatron_map *map = ex->map;

    plait_pickle_ops(out, "\x80\x02}(");
    plait_pickle_text(out, "args");
    plait_megatron_args_write(&ex->args, ex->type, out);
    plait_pickle_text(out, "checkpoint_version");
    plait_pickle_real(out, 3);
    plait_pickle_text(out, "iteration");
    plait_pickle_int(out, 0);
    plait_pickle_text(out, "model");
    plait_pickle_ops(out, "}(");
    for (int i = map->first[file]; i < map->first[file + 1]; i++) {
        const struct plait_megatron_stored *s = &map->stored[i];

        plait_pickle_text(out, s->name);
        plait_torch_out_tensor(out, i - map->first[file], ex->type, s->rows,
                               s->vector ? 0 : s->cols);
    }
    plait_pickle_ops(out, "uu.");
}

/* Read n rows of a piece, from its row `row` on, from Plait's tensor. */
static int read_box(const struct export *ex,
                    const struct plait_megatron_piece *piece, uint64_t row,
                    uint64_t n, float *to, struct plait_error *err)
{
    const struct plait_hf_tensor *t;
    struct plait_tensor_slice slice = {.count = n * piece->cols};
    int rc;

    if (piece->tensor < 0) {
        memset(to, 0, slice.count * sizeof(*to));
        return 0;
    }
    t = &ex->map->tensors[piece->tensor];
    slice.shape[0] = t->rows;
    slice.shape[1] = t->cols;
    slice.begin[t->vector] = piece->row + row; /* in Plait, a vector is a row */
    slice.box[t->vector] = n;
    slice.begin[!t->vector] = piece->col;
    slice.box[!t->vector] = piece->cols;
    snprintf(slice.name, sizeof(slice.name), "%s", t->name);
    rc = plait_sources_fill(&ex->from, &slice, to, err);
    plait_sources_drop(&ex->from, t->name);
    return rc;
}

static int write_piece(const struct export *ex,
                       const struct plait_megatron_piece *piece,
                       struct plait_torch_out *out, struct plait_error *err)
{
    uint64_t most = PLAIT_CONVERT_CHUNK / piece->cols, n;
    float *rows;
    int rc = 0;

    most = most < 1 ? 1 : most > piece->rows ? piece->rows : most;
    rows = malloc(most * piece->cols * sizeof(*rows));
    if (!rows)
        return plait_errorf(err, "%s: out of memory", ex->dir);
    for (uint64_t row = 0; row < piece->rows && rc == 0; row += n) {
        n = piece->rows - row < most ? piece->rows - row : most;
        rc = read_box(ex, piece, row, n, rows, err);
        if (rc == 0 &&
            plait_file_out_write(
                &out->file, rows,
                plait_convert_narrow(rows, n * piece->cols, ex->type)) < 0)
            rc = plait_errorf(err, "%s: cannot write: %s", ex->dir,
                              strerror(errno));
    }
    free(rows);
    return rc;
}

static int write_tensor(const struct export *ex, int index, int key,
                        struct plait_torch_out *out, struct plait_error *err)
{
    const struct plait_megatron_stored *s = &ex->map->stored[index];
    char name[64];

    snprintf(name, sizeof(name), STEM "/data/%d", key);
    if (plait_torch_out_begin(
            out, name, s->rows * s->cols * plait_dtype_size(ex->type)) < 0)
        return plait_errorf(err, "%s: cannot write: %s", ex->dir,
                            strerror(errno));
    for (int i = s->first; i < s->first + s->n; i++)
        if (write_piece(ex, &ex->map->pieces[i], out, err) < 0)
            return -1;
    if (plait_torch_out_end(out) < 0)
        return plait_errorf(err, "%s: cannot write: %s", ex->dir,
                            strerror(errno));
    return 0;
}

static int write_head(const struct export *ex, int file,
                      struct plait_torch_out *out)
{
    struct plait_pickle_out pickle = {0};
    int rc = -1;

    put_pickle(ex, file, &pickle);
    if (pickle.failed)
        errno = ENOMEM;
    else
        rc = plait_torch_out_entry(out, STEM "/data.pkl", pickle.bytes,
                                   pickle.n);
    free(pickle.bytes);
    if (rc == 0)
        rc = plait_torch_out_entry(out, STEM "/byteorder", "little", 6);
    return rc;
}

static int write_file(void *arg, int file, struct plait_error *err)
{
    const struct export *ex = arg;
    const struct plait_megatron_map *map = ex->map;
    struct plait_torch_out out;
    char path[4096 + 64], name[32];
    int rc = 0;

    plait_megatron_file_name(&map->layout, file, name);
    snprintf(path, sizeof(path), "%s/release/%s", ex->dir, name);
    if (mkdir(path, 0777) < 0)
        return plait_errorf(err, "%s: cannot make it: %s", path,
                            strerror(errno));
    snprintf(path, sizeof(path), "%s/release/%s/" STEM ".pt", ex->dir, name);
    if (plait_torch_out_open(&out, path) < 0 || write_head(ex, file, &out) < 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    for (int i = map->first[file]; i < map->first[file + 1] && rc == 0; i++)
        rc = write_tensor(ex, i, i - map->first[file], &out, err);
    if (rc == 0 && plait_torch_out_entry(&out, STEM "/version", "3\n", 2) < 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    if (plait_torch_out_close(&out, rc == 0) < 0 && rc == 0)
        rc = plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
    return rc;
}

/* Name the directory's only checkpoint. */
static int write_tracker(const struct export *ex, struct plait_error *err)
{
    struct plait_file_out out;
    char path[4096 + 64];
    int rc = -1;

    snprintf(path, sizeof(path), "%s/latest_checkpointed_iteration.txt",
             ex->dir);
    if (plait_file_out_open(&out, path) == 0)
        rc = plait_file_out_write(&out, "release", 7);
    if (plait_file_out_close(&out, rc == 0) < 0)
        rc = -1;
    return rc == 0 ? 0
                   : plait_errorf(err, "%s: cannot write: %s", path,
                                  strerror(errno));
}

static int count_parameters(const struct export *ex, struct plait_error *err)
{
    int64_t n = 0;

    for (int i = 0; i < ex->map->ntensors; i++)
        n += (int64_t)(ex->map->tensors[i].rows * ex->map->tensors[i].cols);
    return plait_convert_check_parameters(&ex->from, n, err);
}

static int write_all(struct export *ex, struct plait_error *err)
{
    char path[4096 + 64];

    ex->map = plait_megatron_map_create(&ex->args.model, ex->args.padded_vocab,
                                        &ex->args.layout);
    if (!ex->map)
        return plait_errorf(err, "%s: out of memory", ex->dir);
    snprintf(path, sizeof(path), "%s/release", ex->dir);
    if (count_parameters(ex, err) < 0)
        return -1;
    if (mkdir(path, 0777) < 0)
        return plait_errorf(err, "%s: cannot make it: %s", path,
                            strerror(errno));
    if (plait_convert_files(ex->map->nfiles, write_file, ex, err) < 0)
        return -1;
    return write_tracker(ex, err);
}

/* The model that computes the same without mup. */
static int read_model(const char *path, struct plait_model_config *model,
                      struct plait_error *err)
{
    if (plait_model_file_read(path, model, err) < 0)
        return -1;
    plait_mup_resolve(model);
    return 0;
}

int plait_convert_to_megatron(const char *path, const char *dir,
                              enum plait_dtype type,
                              const struct plait_megatron_layout *layout,
                              struct plait_converted *done,
                              struct plait_error *err)
{
    struct export ex = {.dir = dir, .type = type, .args.layout = *layout};
    int multiple = MULTIPLE * layout->tp, rc = -1;

    if (read_model(path, &ex.args.model, err) == 0 &&
        plait_megatron_args_possible(&ex.args.model, layout, err) == 0 &&
        plait_convert_open(&ex.from, path, err) == 0) {
        ex.args.padded_vocab =
            (ex.args.model.vocab + multiple - 1) / multiple * multiple;
        rc = write_all(&ex, err);
    }
    if (rc == 0)
        *done =
            (struct plait_converted){.tensors = ex.map->ntensors,
                                     .parameters = ex.from.manifest.parameters,
                                     .files = ex.map->nfiles};
    plait_sources_close(&ex.from);
    plait_megatron_map_destroy(ex.map);
    return rc;
}
