/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/file_out.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/convert/convert.h"

/* Writes the tensors of another format as a checkpoint of step 0. */

#define FILE_BYTES ((uint64_t)1 << 30) /* the most, of several tensors */

struct import {
    const struct plait_convert_source *from;
    const struct plait_convert_tensor *tensors;
    const char *dir; /* of the checkpoint */
    int *first;      /* [files + 1] first tensor of each file */
    struct plait_manifest manifest;
};

/* Distribute the tensors to files, in order, FILE_BYTES for each. */
static int divide_tensors(struct import *im, int n, struct plait_error *err)
{
    uint64_t bytes = 0, size;

    im->first = calloc(n + 1, sizeof(*im->first));
    im->manifest.files = calloc(n, sizeof(*im->manifest.files));
    if (!im->first || !im->manifest.files)
        return plait_errorf(err, "%s: out of memory", im->dir);
    for (int i = 0; i < n; i++) {
        size = im->tensors[i].rows * im->tensors[i].cols * sizeof(float);
        if (i == 0 || bytes + size > FILE_BYTES) {
            im->first[im->manifest.nfiles++] = i;
            bytes = 0;
        }
        bytes += size;
        im->manifest.parameters += (int64_t)(size / sizeof(float));
    }
    im->first[im->manifest.nfiles] = n;
    return 0;
}

static void describe_whole(struct plait_tensor_slice *slice,
                           const struct plait_convert_tensor *t)
{
    snprintf(slice->name, sizeof(slice->name), "%s", t->name);
    slice->shape[0] = slice->box[0] = t->rows;
    slice->shape[1] = slice->box[1] = t->cols;
    slice->count = t->rows * t->cols;
}

static int write_head(const struct import *im, int file,
                      struct plait_file_out *out)
{
    int first = im->first[file], n = im->first[file + 1] - first, rc = -1;
    struct plait_tensor_slice *slices = calloc(n, sizeof(*slices));
    unsigned char *head = NULL;
    size_t size;

    for (int i = 0; slices && i < n; i++)
        describe_whole(&slices[i], &im->tensors[first + i]);
    if (slices)
        head = plait_safetensors_encode(slices, n, &size);
    if (head)
        rc = plait_file_out_write(out, head, size);
    free(head);
    free(slices);
    return rc;
}

static int cannot_write(const char *path, struct plait_error *err)
{
    return plait_errorf(err, "%s: cannot write: %s", path, strerror(errno));
}

static int write_tensor(const struct import *im, int index, const char *path,
                        struct plait_file_out *out, struct plait_error *err)
{
    const struct plait_convert_tensor *t = &im->tensors[index];
    uint64_t most = PLAIT_CONVERT_CHUNK / t->cols, n;
    float *rows;
    int rc = 0;

    most = most < 1 ? 1 : most > t->rows ? t->rows : most;
    rows = malloc(most * t->cols * sizeof(*rows));
    if (!rows)
        return plait_errorf(err, "%s: out of memory", path);
    for (uint64_t row = 0; row < t->rows && rc == 0; row += n) {
        n = t->rows - row < most ? t->rows - row : most;
        rc = im->from->read(im->from->from, index, row, n, rows, err);
        if (rc == 0 &&
            plait_file_out_write(out, rows, n * t->cols * sizeof(*rows)) < 0)
            rc = cannot_write(path, err);
    }
    free(rows);
    return rc;
}

static int write_file(void *arg, int file, struct plait_error *err)
{
    struct import *im = arg;
    struct plait_shard_file *written = &im->manifest.files[file];
    struct plait_file_out out;
    char path[4096];
    int rc;

    snprintf(written->name, sizeof(written->name), "rank-%05d.safetensors",
             file);
    snprintf(path, sizeof(path), "%s/%s", im->dir, written->name);
    if (plait_file_out_open(&out, path) < 0)
        return cannot_write(path, err);
    rc = write_head(im, file, &out) < 0 ? cannot_write(path, err) : 0;
    for (int i = im->first[file]; i < im->first[file + 1] && rc == 0; i++)
        rc = write_tensor(im, i, path, &out, err);
    if (plait_file_out_close(&out, rc == 0) < 0 && rc == 0)
        rc = cannot_write(path, err);
    written->bytes = out.bytes;
    written->crc = out.crc;
    return rc;
}

static int write_checkpoint(struct import *im, const char *dir,
                            struct plait_error *err)
{
    char *path = plait_checkpoint_path(dir, 0);
    char *temporary = plait_directory_temporary(dir, 0);
    int rc = -1, made = -1;

    im->dir = temporary;
    im->manifest.info.loss_scale.scale = 1;
    strcpy(im->manifest.optimizer, "none");
    if (!path || !temporary)
        plait_errorf(err, "%s: out of memory", dir);
    else if ((made = plait_directory_prepare(dir, temporary, err)) >= 0 &&
             plait_convert_files(im->manifest.nfiles, write_file, im, err) ==
                 0 &&
             plait_model_file_write(temporary, im->from->model, err) == 0 &&
             plait_manifest_write(temporary, &im->manifest, err) == 0)
        rc = plait_directory_commit(dir, temporary, path, made, err);
    if (made >= 0)
        close(made);
    free(path);
    free(temporary);
    return rc;
}

int plait_convert_import(const struct plait_convert_source *source,
                         const char *dir, struct plait_converted *done,
                         struct plait_error *err)
{
    struct import im = {.from = source, .tensors = source->tensors, .dir = dir};
    int rc = -1;

    if (divide_tensors(&im, source->n, err) == 0)
        rc = write_checkpoint(&im, dir, err);
    if (rc == 0)
        *done = (struct plait_converted){.tensors = source->n,
                                         .parameters = im.manifest.parameters,
                                         .files = im.manifest.nfiles};
    free(im.manifest.files);
    free(im.first);
    return rc;
}

int plait_convert_import_map(struct plait_convert_source *source,
                             const struct plait_hf_tensor *tensors, int n,
                             const char *dir, struct plait_converted *done,
                             struct plait_error *err)
{
    struct plait_convert_tensor *list = calloc((size_t)n, sizeof(*list));
    int rc;

    for (int i = 0; list && i < n; i++) {
        memcpy(list[i].name, tensors[i].name, sizeof(list[i].name));
        list[i].rows = tensors[i].rows;
        list[i].cols = tensors[i].cols;
    }
    source->n = n;
    source->tensors = list;
    rc = list ? plait_convert_import(source, dir, done, err)
              : plait_errorf(err, "%s: out of memory", dir);
    free(list);
    source->tensors = NULL;
    return rc;
}

static int read_hf(const void *from, int index, uint64_t row, uint64_t n,
                   float *out, struct plait_error *err)
{
    return plait_hf_weights_read(from, index, row, n, out, err);
}

int plait_convert_from_hf(const char *from, const char *dir,
                          struct plait_converted *done, struct plait_error *err)
{
    struct plait_hf_weights *weights = plait_hf_weights_open(from, true, err);
    struct plait_convert_source source = {.read = read_hf, .from = weights};
    const struct plait_hf_tensor *there;
    int n, rc;

    if (!weights)
        return -1;
    source.model = plait_hf_weights_model(weights);
    n = plait_hf_weights_list(weights, &there);
    rc = plait_hf_weights_check_copies(weights, err);
    if (rc == 0)
        rc = plait_convert_import_map(&source, there, n, dir, done, err);
    plait_hf_weights_close(weights);
    return rc;
}
