/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"
#include "runtime/convert/dcp.h"
#include "runtime/convert/torch_out.h"

/* A checkpoint of torch.distributed.checkpoint's: the input is its .metadata,
 * behind a beginning that puts the names of the classes and of their
 * attributes, and the sizes of the files, into the pickle's memo, so that few
 * bytes make a whole one. The files "a", of 2 by 2 numbers, and "b", of 2, are
 * always the same. */

#define NUMBERS_MOST 4096 /* of a tensor that an input describes */

static const char *const classes[] = {
    "torch.distributed.checkpoint.metadata\nMetadata",
    "torch.distributed.checkpoint.metadata\nTensorStorageMetadata",
    "torch.distributed.checkpoint.metadata\nTensorProperties",
    "torch.distributed.checkpoint.metadata\nChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata\nMetadataIndex",
    "torch.distributed.checkpoint.metadata\nBytesStorageMetadata",
    "torch.distributed.checkpoint.filesystem\n_StorageInfo",
    "torch\nSize",
    "torch\nfloat32",
    "torch\nbfloat16"};
static const char *const words[] = {"state_dict_metadata",
                                    "storage_data",
                                    "properties",
                                    "size",
                                    "chunks",
                                    "offsets",
                                    "sizes",
                                    "fqn",
                                    "offset",
                                    "relative_path",
                                    "length",
                                    "transform_descriptors"};

static char dir[4096];
static uint64_t sizes[2]; /* of a and b */

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[4096 + 16];
    FILE *out;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    out = fopen(path, "wb");
    if (!out || fwrite(bytes, 1, n, out) != n || fclose(out) != 0)
        abort();
}

static uint64_t write_item(const char *name, uint64_t rows, uint64_t cols)
{
    const float numbers[] = {1, 2, 3, 4};
    struct plait_pickle_out pickle = {0};
    struct plait_torch_out out;
    size_t size = (rows * (cols ? cols : 1)) * sizeof(*numbers);
    char path[4096 + 16];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    plait_pickle_ops(&pickle, "\x80\x02");
    plait_torch_out_tensor(&pickle, 0, PLAIT_F32, rows, cols);
    plait_pickle_ops(&pickle, ".");
    if (plait_torch_out_open(&out, path) < 0 ||
        plait_torch_out_entry(&out, "x/data.pkl", pickle.bytes, pickle.n) < 0 ||
        plait_torch_out_entry(&out, "x/data/0", numbers, size) < 0 ||
        plait_torch_out_close(&out, true) < 0)
        abort();
    free(pickle.bytes);
    return out.file.bytes;
}

static void remove_all(void)
{
    static const char *const names[] = {"/a", "/b", "/.metadata", ""};
    char path[4096 + 16];

    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "%s%s", dir, names[i]);
        remove(path);
    }
}

static void prepare(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(dir, sizeof(dir), "%.4000s/plait-dcp.XXXXXX",
             base ? base : "/tmp");
    if (!mkdtemp(dir))
        abort();
    sizes[0] = write_item("a", 2, 2);
    sizes[1] = write_item("b", 2, 0);
    atexit(remove_all);
}

static void write_metadata(const uint8_t *data, size_t size)
{
    struct plait_pickle_out out = {0};
    unsigned char put[2] = {'q', 0};

    plait_pickle_ops(&out, "\x80\x02");
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        plait_pickle_ops(&out, "c");
        plait_pickle_ops(&out, classes[i]);
        plait_pickle_ops(&out, "\n");
        plait_pickle_raw(&out, put, 2);
        plait_pickle_ops(&out, "0");
        put[1]++;
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        plait_pickle_text(&out, words[i]);
        plait_pickle_raw(&out, put, 2);
        plait_pickle_ops(&out, "0");
        put[1]++;
    }
    for (int i = 0; i < 2; i++) {
        plait_pickle_int(&out, (int64_t)sizes[i]);
        plait_pickle_raw(&out, put, 2);
        plait_pickle_ops(&out, "0");
        put[1]++;
    }
    plait_pickle_raw(&out, data, size);
    if (out.failed)
        abort();
    write_file(".metadata", out.bytes, out.n);
    free(out.bytes);
}

/* What was checked must be there: each number of each row. */
static void read_all(struct plait_dcp *dcp, int tensor)
{
    const struct plait_dcp_tensor *t = &dcp->tensors[tensor];
    uint64_t rows = 1, cols = 1;
    struct plait_dcp_rows want = {.nlead = 0};
    struct plait_error err;
    float out[NUMBERS_MOST];

    if (plait_dcp_check(dcp, tensor, &err) < 0 || t->ndim < 1 || t->ndim > 2)
        return;
    rows = t->shape[0];
    cols = t->ndim > 1 ? t->shape[1] : 1;
    if (rows * cols > NUMBERS_MOST) /* there is a chunk for each four */
        abort();
    want.n = rows;
    for (int i = 0; i < NUMBERS_MOST; i++)
        out[i] = NAN;
    if (plait_dcp_read(dcp, tensor, &want, out, &err) < 0)
        abort();
    for (uint64_t i = 0; i < rows * cols; i++)
        if (isnan(out[i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plait_error err;
    struct plait_dcp *dcp;

    if (!dir[0])
        prepare();
    write_metadata(data, size);
    dcp = plait_dcp_open(dir, &err);
    for (int i = 0; dcp && i < dcp->n; i++)
        read_all(dcp, i);
    plait_dcp_close(dcp);
    return 0;
}
