/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/convert/llmc.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/dtype.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/convert/convert_rows.h"
#include "runtime/convert/read_bytes.h"
#include "topology/job/fits.h"
#include "topology/job/model_size.h"
#include "topology/job/mup.h"

enum { MAGIC = 20240326, FP32 = 3, BF16 = 5, HEADER = 1024, PAD = 128 };
/* Bytes of a layer with one hidden unit, and less than any layer has. */
enum { LEAST_OF_LAYER = 32 };

/* -- what is in a file ---------------------------------------------------- */

struct llmc {
    const char *path;
    int fd;
    enum plait_dtype type;
    struct plait_model_config model;
    uint64_t padding; /* rows that pad the embedding */
    int n;
    struct plait_convert_tensor *tensors; /* in the file's order */
    uint64_t *offset;  /* elements of the file before each of them */
    uint64_t elements; /* of all tensors */
};

/* A tensor that each layer has: the part of its name after "layers.N.", its
 * rows and columns. */
struct kind {
    const char *name;
    uint64_t rows, cols;
};

static void add_tensor(struct llmc *l, const char *name, uint64_t rows,
                       uint64_t cols)
{
    struct plait_convert_tensor *t = &l->tensors[l->n];

    snprintf(t->name, sizeof(t->name), "%s", name);
    t->rows = rows;
    t->cols = cols;
    l->offset[l->n++] = l->elements;
    l->elements += rows * cols;
}

/* Add n kinds that are one tensor in the file, for all layers. */
static void add_layers(struct llmc *l, const struct kind *kinds, int n)
{
    char name[64];

    for (int layer = 0; layer < l->model.layers; layer++)
        for (int i = 0; i < n; i++) {
            snprintf(name, sizeof(name), "layers.%d.%s", layer, kinds[i].name);
            add_tensor(l, name, kinds[i].rows, kinds[i].cols);
        }
}

static int list_tensors(struct llmc *l, struct plait_error *err)
{
    const struct plait_model_config *m = &l->model;
    uint64_t C = m->hidden;
    const struct kind kinds[] = {
        {"attention_norm.weight", 1, C}, {"attention_norm.bias", 1, C},
        {"attention.q.weight", C, C},    {"attention.k.weight", C, C},
        {"attention.v.weight", C, C},    {"attention.q.bias", 1, C},
        {"attention.k.bias", 1, C},      {"attention.v.bias", 1, C},
        {"attention.out.weight", C, C},  {"attention.out.bias", 1, C},
        {"mlp_norm.weight", 1, C},       {"mlp_norm.bias", 1, C},
        {"mlp.up.weight", 4 * C, C},     {"mlp.up.bias", 1, 4 * C},
        {"mlp.down.weight", C, 4 * C},   {"mlp.down.bias", 1, C}};
    static const int joined[] = {1, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1};
    size_t most = (size_t)m->layers * 16 + 4;
    int at = 0;

    l->tensors = calloc(most, sizeof(*l->tensors));
    l->offset = calloc(most, sizeof(*l->offset));
    if (!l->tensors || !l->offset)
        return plait_errorf(err, "%s: out of memory", l->path);
    add_tensor(l, "embedding.weight", m->vocab, C);
    l->elements += l->padding * C;
    add_tensor(l, "position.weight", m->seq_len, C);
    for (int i = 0; i < 12; at += joined[i++])
        add_layers(l, kinds + at, joined[i]);
    add_tensor(l, "norm.weight", 1, C);
    add_tensor(l, "norm.bias", 1, C);
    return 0;
}

/* -- reading -------------------------------------------------------------- */

static int read_rows(const void *from, int index, uint64_t row, uint64_t n,
                     float *out, struct plait_error *err)
{
    const struct llmc *l = from;
    size_t size = plait_dtype_size(l->type);
    uint64_t cols = l->tensors[index].cols, count = n * cols;
    uint16_t bits;

    if (plait_read_bytes(l->fd, l->path,
                         HEADER + (l->offset[index] + row * cols) * size, out,
                         count * size, err) < 0)
        return -1;
    for (uint64_t i = count; l->type == PLAIT_BF16_T && i-- > 0;) {
        memcpy(&bits, (const char *)out + 2 * i, 2);
        out[i] = plait_f32_of_bf16(bits);
    }
    return 0;
}

/* Check that plait-train would accept a model of these sizes. */
static int check_model(struct llmc *l, const int32_t *head,
                       struct plait_error *err)
{
    struct plait_job_config *job =
        plait_job_config_parse("default", "", 0, NULL, 0, err);
    struct plait_model_config *m;
    struct plait_error why;
    int rc = -1;

    if (!job)
        return -1;
    m = &job->model;
    m->family = PLAIT_GPT2;
    m->seq_len = head[2];
    m->vocab = head[3];
    m->layers = head[4];
    m->heads = m->kv_heads = head[5];
    m->hidden = head[6];
    m->ffn = 4 * m->hidden;
    m->tie_embeddings = true;
    errno = EINVAL;
    for (int i = 2; i <= 6; i++)
        if (head[i] < 1 || head[i] > 1 << 24) {
            plait_errorf(err, "%s: corrupt header: number %d is %d", l->path, i,
                         head[i]);
            goto done;
        }
    if (head[7] < m->vocab || head[7] > m->vocab + (1 << 16)) {
        plait_errorf(err,
                     "%s: corrupt header: a vocabulary of %d is padded to %d",
                     l->path, m->vocab, head[7]);
    } else if (plait_fits_config(job, &why) < 0) {
        plait_errorf(err, "%s: %s", l->path, why.text);
    } else {
        l->model = *m;
        l->padding = (uint64_t)(head[7] - m->vocab);
        rc = 0;
    }
done:
    plait_job_config_destroy(job);
    return rc;
}

static int read_header(struct llmc *l, struct plait_error *err)
{
    int32_t head[256];
    struct stat st;
    uint64_t want;

    if (fstat(l->fd, &st) < 0 ||
        plait_read_bytes(l->fd, l->path, 0, head, HEADER, err) < 0)
        return plait_errorf(err,
                            "%s: not a model of llm.c's: the file is shorter "
                            "than a header of %d bytes",
                            l->path, HEADER);
    for (int i = 0; i < 256; i++)
        head[i] = (int32_t)le32toh((uint32_t)head[i]);
    errno = EINVAL;
    if (head[0] != MAGIC || (head[1] != FP32 && head[1] != BF16))
        return plait_errorf(err,
                            "%s: version %d of llm.c's models is not "
                            "supported; 3 (fp32) and 5 (bf16) are",
                            l->path, head[1]);
    l->type = head[1] == FP32 ? PLAIT_F32 : PLAIT_BF16_T;
    if (check_model(l, head, err) < 0)
        return -1;
    errno = EINVAL;
    if (l->model.layers > st.st_size / LEAST_OF_LAYER)
        return plait_errorf(err,
                            "%s: truncated: its header says %d layers, the "
                            "file has %lld bytes",
                            l->path, l->model.layers, (long long)st.st_size);
    if (list_tensors(l, err) < 0)
        return -1;
    want = HEADER + l->elements * plait_dtype_size(l->type);
    errno = EINVAL;
    if ((uint64_t)st.st_size == want)
        return 0;
    return plait_errorf(err,
                        "%s: %s: its header says %llu bytes in all, the file "
                        "has %lld",
                        l->path,
                        (uint64_t)st.st_size < want ? "truncated" : "too long",
                        (unsigned long long)want, (long long)st.st_size);
}

bool plait_llmc_is_model(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint32_t magic = 0;
    struct stat st;
    bool is;

    if (fd < 0)
        return false;
    is = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
         pread(fd, &magic, 4, 0) == 4 && le32toh(magic) == MAGIC;
    close(fd);
    return is;
}

static void close_model(struct llmc *l)
{
    if (l->fd >= 0)
        close(l->fd);
    free(l->tensors);
    free(l->offset);
}

int plait_convert_from_llmc(const char *path, const char *dir,
                            struct plait_converted *done,
                            struct plait_error *err)
{
    struct llmc l = {.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    struct plait_convert_source source = {.read = read_rows, .from = &l};
    int rc;

    rc = l.fd < 0 ? plait_errorf(err, "%s: %s", path, strerror(errno))
                  : read_header(&l, err);
    source.model = &l.model;
    source.tensors = l.tensors;
    source.n = l.n;
    if (rc == 0)
        rc = plait_convert_import(&source, dir, done, err);
    close_model(&l);
    return rc;
}

/* -- writing -------------------------------------------------------------- */

/* Refuse models that llm.c's format cannot hold. */
static int check_possible(const struct plait_model_config *m,
                          struct plait_error *err)
{
    const char *what = NULL;

    if (m->family != PLAIT_GPT2)
        what = "model.family other than gpt2";
    else if (!m->tie_embeddings)
        what = "model.tie_embeddings false";
    else if (m->ffn != 4 * m->hidden)
        what = "model.ffn other than 4 * model.hidden";
    else if (m->experts)
        what = "model.experts";
    else if (m->mtp_layers)
        what = "model.mtp_layers";
    else if (plait_model_head_dim(m) * m->heads != m->hidden)
        what = "model.head_dim of its own";
    else if (plait_model_multiplier(m))
        what = "multipliers, as model.mup makes them";
    else if (fabs(m->norm_eps - 1e-5) > 1e-9)
        what = "model.norm_eps other than 1e-5";
    errno = EINVAL;
    return what ? plait_errorf(err, "llm.c's format has no %s", what) : 0;
}

static int write_header(const struct llmc *l, struct plait_file_out *out)
{
    const struct plait_model_config *m = &l->model;
    uint32_t head[256] = {MAGIC,
                          l->type == PLAIT_F32 ? FP32 : BF16,
                          (uint32_t)m->seq_len,
                          (uint32_t)m->vocab,
                          (uint32_t)m->layers,
                          (uint32_t)m->heads,
                          (uint32_t)m->hidden,
                          (uint32_t)(m->vocab + (int)l->padding)};

    for (int i = 0; i < 256; i++)
        head[i] = htole32(head[i]);
    return plait_file_out_write(out, head, sizeof(head));
}

static int write_tensors(const struct llmc *l, const struct plait_sources *from,
                         struct plait_file_out *out, struct plait_error *err)
{
    struct plait_row_run run;

    for (int i = 0; i < l->n; i++) {
        const struct plait_convert_tensor *t = &l->tensors[i];

        run = (struct plait_row_run){
            .rows = t->rows, .cols = t->cols, .n = t->rows};
        memcpy(run.name, t->name, sizeof(run.name));
        if (plait_convert_write_run(from, &run, l->type, out, err) < 0)
            return -1;
        run.name[0] = '\0';
        run.n = l->padding;
        if (i == 0 && plait_convert_write_run(from, &run, l->type, out, err))
            return -1;
    }
    return 0;
}

static int write_model(const struct llmc *l, const struct plait_sources *from,
                       struct plait_error *err)
{
    struct plait_file_out out;
    int rc;

    if (plait_file_out_open(&out, l->path) < 0 || write_header(l, &out) < 0)
        rc =
            plait_errorf(err, "%s: cannot write: %s", l->path, strerror(errno));
    else
        rc = write_tensors(l, from, &out, err);
    if (plait_file_out_close(&out, rc == 0) < 0 && rc == 0)
        rc =
            plait_errorf(err, "%s: cannot write: %s", l->path, strerror(errno));
    return rc;
}

int plait_convert_to_llmc(const char *path, const char *dir,
                          enum plait_dtype type, struct plait_converted *done,
                          struct plait_error *err)
{
    char to[4096 + 64];
    struct llmc l = {.path = to, .fd = -1, .type = type};
    struct plait_sources from = {0};
    int64_t parameters;
    int rc = -1;

    snprintf(to, sizeof(to), "%s/model.bin", dir);
    if (plait_model_file_read(path, &l.model, err) < 0)
        goto done;
    plait_mup_resolve(&l.model); /* the model that computes the same */
    if (check_possible(&l.model, err) < 0 ||
        plait_convert_open(&from, path, err) < 0)
        goto done;
    l.padding = (uint64_t)(PAD - l.model.vocab % PAD) % PAD;
    if (list_tensors(&l, err) < 0)
        goto done;
    parameters = (int64_t)(l.elements - l.padding * (uint64_t)l.model.hidden);
    if (plait_convert_check_parameters(&from, parameters, err) < 0)
        goto done;
    rc = write_model(&l, &from, err);
    if (rc == 0)
        *done = (struct plait_converted){
            .tensors = l.n, .parameters = parameters, .files = 1};
done:
    plait_sources_close(&from);
    close_model(&l);
    return rc;
}
