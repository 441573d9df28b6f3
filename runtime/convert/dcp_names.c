/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/convert/dcp_names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define EMBEDDING_HF "model.embed_tokens.weight"
#define EMBEDDING_GPT2 "transformer.wte.weight"
#define EMBEDDING_TITAN "tok_embeddings.weight"

/* Plait's names of a layer's tensors and torchtitan's, of today and before. */
static const struct {
    const char *here, *there, *before;
} titan_names[] = {
    {"embedding.weight", EMBEDDING_TITAN, NULL},
    {"norm.weight", "norm.weight", NULL},
    {"head.weight", "lm_head.weight", "output.weight"},
    {"attention_norm.weight", "attention_norm.weight", NULL},
    {"mlp_norm.weight", "ffn_norm.weight", NULL},
    {"attention.q.weight", "attention.qkv_linear.wq.weight",
     "attention.wq.weight"},
    {"attention.k.weight", "attention.qkv_linear.wk.weight",
     "attention.wk.weight"},
    {"attention.v.weight", "attention.qkv_linear.wv.weight",
     "attention.wv.weight"},
    {"attention.out.weight", "attention.wo.weight", NULL},
    {"attention.q_norm.weight", "attention.q_norm.weight", NULL},
    {"attention.k_norm.weight", "attention.k_norm.weight", NULL},
    {"mlp.gate.weight", "feed_forward.w1.weight", NULL},
    {"mlp.up.weight", "feed_forward.w3.weight", NULL},
    {"mlp.down.weight", "feed_forward.w2.weight", NULL},
    {"router.weight", "moe.router.gate.weight", NULL},
    {"experts.gate", "moe.routed_experts.inner_experts.w1_EFD",
     "moe.experts.w1"},
    {"experts.up", "moe.routed_experts.inner_experts.w3_EFD", "moe.experts.w3"},
    {"experts.down", "moe.routed_experts.inner_experts.w2_EDF",
     "moe.experts.w2"},
};

/* -- which names ---------------------------------------------------------- */

/* Whether `name` is PREFIX + end; a prefix ends in a dot. */
static bool has_end(const char *name, const char *end, char prefix[128])
{
    size_t n = strlen(name), m = strlen(end);

    if (n < m || n - m >= 128 || strcmp(name + n - m, end) != 0 ||
        (n > m && name[n - m - 1] != '.'))
        return false;
    memcpy(prefix, name, n - m);
    prefix[n - m] = '\0';
    return true;
}

/* Of several models, such as one and its average, the one without a prefix or
 * with the shortest of these is meant: what the documents of PyTorch use. */
static int rank_of(const char *prefix)
{
    static const char *const usual[] = {"", "model.", "app.model.",
                                        "state_dict.model."};

    for (int i = 0; i < 4; i++)
        if (!strcmp(prefix, usual[i]))
            return i;
    return 4;
}

static int no_model(const struct plait_dcp *dcp, struct plait_error *err)
{
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: it has no tensor " EMBEDDING_HF ", " EMBEDDING_GPT2
                        " or " EMBEDDING_TITAN
                        "; only models with these names are read",
                        dcp->dir);
}

int plait_dcp_names_find(const struct plait_dcp *dcp, bool gpt2,
                         struct plait_dcp_names *names, struct plait_error *err)
{
    const char *hf = gpt2 ? EMBEDDING_GPT2 : EMBEDDING_HF;
    struct plait_dcp_names found = {.titan = false}, best = found;
    int best_rank = 5;

    for (int i = 0; i < dcp->n; i++) {
        const char *name = dcp->tensors[i].name;
        int rank;

        found.titan = false;
        if (!has_end(name, hf, found.prefix)) {
            found.titan = true;
            if (gpt2 || !has_end(name, EMBEDDING_TITAN, found.prefix))
                continue;
        }
        rank = rank_of(found.prefix);
        errno = EINVAL;
        if (rank == best_rank)
            return plait_errorf(err,
                                "%s: it has two models, under %.100s and "
                                "%.100s",
                                dcp->dir, best.prefix, found.prefix);
        if (rank < best_rank) {
            best = found;
            best_rank = rank;
        }
    }
    if (best_rank == 5)
        return no_model(dcp, err);
    *names = best;
    return 0;
}

/* -- where a tensor is ---------------------------------------------------- */

static void look_for(const struct plait_dcp *dcp,
                     const struct plait_dcp_names *names,
                     struct plait_dcp_place *place)
{
    char whole[128 + 256];

    snprintf(whole, sizeof(whole), "%s%s", names->prefix, place->name);
    place->tensor = plait_dcp_find(dcp, whole);
}

/* "layers.3.experts.7.gate.weight": an expert's tensor is called
 * "experts.gate". Returns what follows the layer, which is `layer` characters
 * long. */
static const char *without_layer(const char *name, size_t *layer)
{
    const char *at = name;

    *layer = 0;
    if (strncmp(name, "layers.", 7) != 0)
        return name;
    at += 7 + strspn(name + 7, "0123456789");
    if (*at != '.')
        return name;
    *layer = (size_t)(at + 1 - name);
    return at + 1;
}

static void place_titan(const struct plait_dcp *dcp,
                        const struct plait_dcp_names *names,
                        const struct plait_hf_tensor *t,
                        struct plait_dcp_place *place)
{
    size_t layer;
    const char *rest = without_layer(t->name, &layer);
    char expert[48], part[16];
    unsigned long long e;

    if (sscanf(rest, "experts.%llu.%15[a-z].weight", &e, part) == 2) {
        snprintf(expert, sizeof(expert), "experts.%s", part);
        rest = expert;
        place->nlead = 1;
        place->lead = e;
    }
    for (size_t i = 0; i < sizeof(titan_names) / sizeof(titan_names[0]); i++) {
        if (strcmp(rest, titan_names[i].here) != 0)
            continue;
        if (titan_names[i].before) {
            snprintf(place->name, sizeof(place->name), "%.*s%s", (int)layer,
                     t->name, titan_names[i].before);
            look_for(dcp, names, place);
        }
        if (place->tensor >= 0)
            return;
        snprintf(place->name, sizeof(place->name), "%.*s%s", (int)layer,
                 t->name, titan_names[i].there);
        look_for(dcp, names, place);
        return;
    }
    snprintf(place->name, sizeof(place->name), "%s", t->name);
}

/* In memory, and so in these checkpoints, transformers 5 has the experts of a
 * layer in two tensors, the gates before the ups, and the router beside them.
 */
static void place_joined_expert(const struct plait_dcp *dcp,
                                const struct plait_dcp_names *names,
                                const struct plait_hf_tensor *t,
                                struct plait_dcp_place *place)
{
    size_t layer;
    const char *rest = without_layer(t->name, &layer);
    unsigned long long e;
    char part[16];

    if (!strcmp(rest, "router.weight")) {
        snprintf(place->name, sizeof(place->name), "model.%.*smlp.gate.weight",
                 (int)layer, t->name);
        look_for(dcp, names, place);
    }
    if (sscanf(rest, "experts.%llu.%15[a-z].weight", &e, part) != 2)
        return;
    place->nlead = 1;
    place->lead = e;
    place->half = !strcmp(part, "gate") ? 0 : !strcmp(part, "up") ? 1 : -1;
    snprintf(place->name, sizeof(place->name), "model.%.*smlp.experts.%s",
             (int)layer, t->name,
             place->half < 0 ? "down_proj" : "gate_up_proj");
    look_for(dcp, names, place);
}

void plait_dcp_names_place(const struct plait_dcp *dcp,
                           const struct plait_dcp_names *names,
                           const struct plait_hf_tensor *t,
                           struct plait_dcp_place *place)
{
    struct plait_dcp_place joined;

    *place = (struct plait_dcp_place){.tensor = -1, .half = -1};
    if (names->titan) {
        place_titan(dcp, names, t, place);
        return;
    }
    snprintf(place->name, sizeof(place->name), "%s", t->hf);
    look_for(dcp, names, place);
    if (place->tensor >= 0)
        return;
    joined = *place;
    place_joined_expert(dcp, names, t, &joined);
    if (joined.tensor >= 0)
        *place = joined;
}
