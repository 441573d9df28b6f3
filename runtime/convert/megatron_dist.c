/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a checkpoint of Megatron-core's form torch_dist: one of DCP's, whose
 * tensors are whole ones of the model, those of all layers in one, and
 * common.pt with the arguments. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/convert/dcp.h"
#include "runtime/convert/megatron_rows.h"
#include "runtime/convert/torch_file.h"
#include "topology/base/files.h"

/* Where a tensor of one rank's model is: in the tensor of all layers, at the
 * layer's index, and perhaps the expert's. */
struct place {
    int tensor, second; /* -1: none; else the rows from `split` on, of up */
    uint64_t split;
    int nlead;
    uint64_t lead[2];
};

struct dist {
    const char *path;
    struct plait_megatron_args args;
    struct plait_megatron_map *map;
    struct plait_dcp *dcp;
    struct place *places; /* [map->nstored] */
    struct plait_error *err;
};

bool plait_megatron_is_distributed(const char *path)
{
    return plait_files_has(path, "common.pt") ||
           (plait_files_has(path, ".metadata") &&
            plait_files_has(path, "metadata.json"));
}

/* -- arguments ------------------------------------------------------------ */

static int check_backend(const struct dist *d)
{
    char path[4096 + 32];
    const char *backend;
    json_t *root;
    int rc = 0;

    snprintf(path, sizeof(path), "%.4000s/metadata.json", d->path);
    root = json_load_file(path, 0, NULL);
    backend = json_string_value(json_object_get(root, "sharded_backend"));
    errno = EINVAL;
    if (backend && strcmp(backend, "torch_dist") != 0)
        rc = plait_errorf(d->err,
                          "%s: its sharded_backend is %.40s; only torch_dist "
                          "is supported",
                          path, backend);
    json_decref(root);
    return rc;
}

static int read_args(struct dist *d)
{
    const struct plait_pickle_value *root;
    struct plait_torch_file *file;
    char path[4096 + 32];
    int rc = -1;

    snprintf(path, sizeof(path), "%.4000s/common.pt", d->path);
    file = plait_torch_file_open(path, d->err);
    if (!file)
        return -1;
    root = plait_torch_file_root(file);
    errno = EINVAL;
    if (!plait_pickle_dict(root))
        plait_errorf(d->err, "%s: its pickle is not a dict", path);
    else
        rc = plait_megatron_args_read(path, plait_pickle_find(root, "args"),
                                      true, &d->args, d->err);
    plait_torch_file_close(file);
    return rc;
}

/* -- where the tensors are ------------------------------------------------ */

/* The name of a layer's tensor in two parts, as "linear_fc1.weight" of expert 3
 * of layer 2: "mlp.experts.local_experts.3." is left out. */
struct name {
    bool layered, expert;
    unsigned layer, e;
    char rest[128];
};

static void split_name(const char *whole, struct name *name)
{
    int n = 0, m = 0;

    *name = (struct name){.layered = false};
    if (sscanf(whole, "decoder.layers.%u.%n", &name->layer, &n) == 1 && n) {
        name->layered = true;
        whole += n;
    }
    if (sscanf(whole, "mlp.experts.local_experts.%u.%n", &name->e, &m) == 1 &&
        m) {
        name->expert = true;
        whole += m;
    }
    snprintf(name->rest, sizeof(name->rest), "%s", whole);
}

/* Look for a tensor, or for the two that are the gate's and up's of linear_fc1
 * in newer checkpoints. */
static bool look_for(const struct dist *d, const char *name, struct place *p)
{
    char part[256];

    p->tensor = plait_dcp_find(d->dcp, name);
    p->second = -1;
    if (p->tensor >= 0)
        return true;
    snprintf(part, sizeof(part), "%s_w", name);
    p->tensor = plait_dcp_find(d->dcp, part);
    snprintf(part, sizeof(part), "%s_v", name);
    p->second = plait_dcp_find(d->dcp, part);
    return p->tensor >= 0 && p->second >= 0;
}

/* Layers and experts are indices of one tensor, or in the name. */
static bool find_named(const struct dist *d, const struct name *name,
                       struct place *p)
{
    const char *experts = name->expert ? "mlp.experts.experts." : "";
    char whole[256];

    p->nlead = 0;
    if (!name->layered)
        return look_for(d, name->rest, p);
    p->lead[p->nlead++] = name->layer;
    if (name->expert)
        p->lead[p->nlead++] = name->e;
    snprintf(whole, sizeof(whole), "decoder.layers.%s%s", experts, name->rest);
    if (look_for(d, whole, p))
        return true;
    p->nlead = name->expert;
    p->lead[0] = name->e;
    snprintf(whole, sizeof(whole), "decoder.layers.%u.%s%s", name->layer,
             experts, name->rest);
    if (look_for(d, whole, p))
        return true;
    p->nlead = 0;
    snprintf(whole, sizeof(whole),
             "decoder.layers.%u.mlp.experts.experts.%u.%s", name->layer,
             name->e, name->rest);
    return name->expert && look_for(d, whole, p);
}

/* A norm has the name that Transformer Engine gives it, in the product that
 * follows it, or one of its own. */
static bool find_place(const struct dist *d, const char *stored,
                       struct place *p)
{
    static const char *const norms[][2] = {
        {"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
        {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."}};
    struct name name, other;

    split_name(stored, &name);
    if (find_named(d, &name, p))
        return true;
    for (int i = 0; i < 4; i++) {
        const char *from = norms[i / 2][i % 2], *to = norms[i / 2][1 - i % 2];

        if (strncmp(name.rest, from, strlen(from)) != 0)
            continue;
        other = name;
        snprintf(other.rest, sizeof(other.rest), "%.40s%.40s", to,
                 name.rest + strlen(from));
        return find_named(d, &other, p);
    }
    return false;
}

static int check_shape(const struct dist *d, const struct place *p, int tensor,
                       const struct plait_megatron_stored *s)
{
    const struct plait_dcp_tensor *t = &d->dcp->tensors[tensor];
    struct plait_dcp_tensor want = {.ndim = 0};
    char there[128], here[128];

    if (p->nlead == 2 || (p->nlead == 1 && !strstr(t->name, ".experts.")))
        want.shape[want.ndim++] = (uint64_t)d->args.model.layers;
    if (want.ndim < p->nlead)
        want.shape[want.ndim++] = (uint64_t)d->args.model.experts;
    want.shape[want.ndim++] = s->rows / (p->second >= 0 ? 2 : 1);
    if (!s->vector)
        want.shape[want.ndim++] = s->cols;
    if (t->ndim == want.ndim &&
        !memcmp(t->shape, want.shape, (size_t)t->ndim * sizeof(*t->shape)))
        return 0;
    plait_dcp_shape(t, there);
    plait_dcp_shape(&want, here);
    errno = EINVAL;
    return plait_errorf(d->err,
                        "%s: tensor %.100s is %s, by its args it must be %s",
                        d->path, t->name, there, here);
}

static int place_tensor(const struct dist *d, int stored, bool *used)
{
    const struct plait_megatron_stored *s = &d->map->stored[stored];
    struct place *p = &d->places[stored];
    int both[2];

    errno = EINVAL;
    if (!find_place(d, s->name, p))
        return plait_errorf(d->err,
                            "%s: tensor %.100s is missing; its args require it",
                            d->path, s->name);
    p->split = p->second >= 0 ? s->rows / 2 : s->rows;
    both[0] = p->tensor;
    both[1] = p->second;
    for (int i = 0; i < 2 && both[i] >= 0; i++) {
        used[both[i]] = true;
        if (check_shape(d, p, both[i], s) < 0 ||
            plait_dcp_check(d->dcp, both[i], d->err) < 0)
            return -1;
    }
    return 0;
}

/* The state of optimizers and of random numbers has other names. */
static int check_others(const struct dist *d, const bool *used)
{
    static const char *const first[] = {"decoder.", "embedding.",
                                        "output_layer."};

    for (int i = 0; i < d->dcp->n; i++) {
        const char *name = d->dcp->tensors[i].name;

        for (int k = 0; k < 3; k++) {
            if (used[i] || strncmp(name, first[k], strlen(first[k])) != 0 ||
                strstr(name, "_extra_state"))
                continue;
            errno = EINVAL;
            return plait_errorf(d->err,
                                "%s: tensor %.100s does not belong to the "
                                "model that its args describe",
                                d->path, name);
        }
    }
    return 0;
}

static int open_dist(struct dist *d)
{
    bool *used = NULL;
    int rc = -1;

    if (check_backend(d) < 0 || read_args(d) < 0)
        return -1;
    d->dcp = plait_dcp_open(d->path, d->err);
    if (!d->dcp)
        return -1;
    d->map = plait_megatron_map_create(&d->args.model, d->args.padded_vocab,
                                       &d->args.layout);
    if (d->map) {
        d->places = calloc((size_t)d->map->nstored, sizeof(*d->places));
        used = calloc((size_t)d->dcp->n + 1, sizeof(*used));
    }
    if (d->places && used)
        rc = 0;
    else
        plait_errorf(d->err, "%s: out of memory", d->path);
    for (int i = 0; rc == 0 && i < d->map->nstored; i++)
        rc = place_tensor(d, i, used);
    if (rc == 0)
        rc = check_others(d, used);
    free(used);
    return rc;
}

/* -- reading -------------------------------------------------------------- */

static int read_stored(const void *from, int stored, uint64_t row, uint64_t n,
                       float *out, struct plait_error *err)
{
    const struct dist *d = from;
    const struct place *p = &d->places[stored];
    uint64_t cols = d->map->stored[stored].cols, first = 0;
    struct plait_dcp_rows rows = {
        .nlead = p->nlead, .lead = {p->lead[0], p->lead[1]}, .row = row};

    if (row < p->split) {
        first = p->split - row < n ? p->split - row : n;
        rows.n = first;
        if (plait_dcp_read(d->dcp, p->tensor, &rows, out, err) < 0)
            return -1;
    }
    if (first == n)
        return 0;
    rows.row = row + first - p->split;
    rows.n = n - first;
    return plait_dcp_read(d->dcp, p->second, &rows, out + first * cols, err);
}

int plait_convert_from_megatron_dist(const char *path, const char *dir,
                                     struct plait_converted *done,
                                     struct plait_error *err)
{
    struct dist d = {.path = path, .err = err};
    struct plait_megatron_source source = {
        .path = path, .args = &d.args, .read = read_stored, .from = &d};
    int rc = open_dist(&d);

    if (rc == 0) {
        source.map = d.map;
        rc = plait_megatron_import(&source, dir, done, err);
    }
    plait_dcp_close(d.dcp);
    plait_megatron_map_destroy(d.map);
    free(d.places);
    return rc;
}
