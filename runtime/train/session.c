/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/session.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/hf_weights.h"
#include "runtime/checkpoint/model_source.h"
#include "runtime/comm/agree.h"
#include "runtime/comm/consensus.h"
#include "runtime/train/claims.h"
#include "runtime/train/data_vocab.h"
#include "runtime/train/elastic.h"
#include "runtime/train/figures.h"
#include "runtime/train/first_weights.h"
#include "runtime/train/metrics/metrics.h"
#include "topology/base/clock.h"
#include "topology/base/files.h"
#include "topology/base/hash.h"
#include "topology/base/text.h"
#include "topology/job/fits.h"
#include "topology/job/settings.h"
#include "topology/node/domain.h"

/* -- configuration ------------------------------------------------------- */

/* The text of a configuration for the model of a directory. */
static int describe_model(const char *dir, int world, char **text, size_t *size,
                          struct plait_error *err)
{
    struct plait_model_source source;
    struct plait_model_config model;
    FILE *out;

    if (plait_model_source_find(dir, &source, err) < 0 ||
        (source.hf ? plait_hf_model_read(source.path, &model, err)
                   : plait_model_file_read(source.path, &model, err)) < 0)
        return -1;
    out = open_memstream(text, size);
    if (!out)
        return plait_errorf(err, "out of memory");
    plait_job_config_print_model(&model, out);
    fprintf(out, "train: {global_batch: %d, micro_batch: 1}\n", world);
    if (fclose(out) == 0)
        return 0;
    free(*text);
    return plait_errorf(err, "out of memory");
}

/* Parse the text of the first start again, because the file may have
 * changed. */
static int parse_again(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    const struct plait_elastic *e = s->elastic;

    s->config_text = strdup(e->config_text);
    if (s->config_text)
        s->config = plait_job_config_parse(args->config, s->config_text,
                                           strlen(s->config_text), args->set,
                                           args->nset, err);
    else
        plait_errorf(err, "out of memory");
    return plait_error_consensus(s->world.comm, s->config ? 0 : -1, err);
}

/* A folder, or a model of Hugging Face's, in place of the configuration: what
 * to give instead, behind what was wrong. Local. */
static void name_config(const char *given, struct plait_error *err)
{
    const char *slash = strrchr(given, '/');
    bool theirs = strcmp(slash ? slash + 1 : given, "config.json") == 0;
    struct plait_error why = *err;
    char dir[512], room[PLAIT_QUOTED_MAX];

    if (plait_files_has(given, "plait.yaml"))
        plait_errorf(err, "%.400s; its configuration is %.512s/plait.yaml",
                     why.text, given);
    else if (plait_files_has(given, "latest/plait.yaml"))
        plait_errorf(err,
                     "%.400s; its configuration is %.512s/latest/plait.yaml",
                     why.text, given);
    else if (theirs || plait_files_has(given, "config.json")) {
        int n = !theirs ? (int)strlen(given) : slash ? (int)(slash - given) : 0;

        snprintf(dir, sizeof(dir), "%.*s", n, given);
        plait_errorf(err,
                     "%.300s; 'plait convert --from %s --to NEW-FOLDER' makes "
                     "a checkpoint with a plait.yaml of it",
                     why.text, n ? plait_text_quote(dir, room) : ".");
    }
}

static int read_config(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    const char *name = args->model ? args->model : args->config;
    size_t size = 0;
    char *text = NULL;
    int rc = 0;

    if (s->elastic)
        return parse_again(s, args, err);
    if (plait_comm_rank(s->world.comm) == 0)
        rc = args->model ? describe_model(name, plait_comm_size(s->world.comm),
                                          &text, &size, err)
                         : plait_job_config_read(name, &text, &size, err);
    if (rc < 0 && !args->model)
        name_config(name, err);
    if (plait_broadcast_text(s->world.comm, rc, &text, &size, err) < 0)
        return -1;
    s->config =
        plait_job_config_parse(name, text, size, args->set, args->nset, err);
    if (!s->config && !args->model && plait_comm_rank(s->world.comm) == 0)
        name_config(name, err);
    if (s->config && !(s->config_text = strndup(text, size)))
        rc = plait_errorf(err, "out of memory");
    free(text);
    return plait_error_consensus(s->world.comm, s->config ? rc : -1, err);
}

/* All that decides what a rank does, in lines, without what a rank may have of
 * its own. malloc'ed; NULL: out of memory. */
static char *describe_run(const struct plait_session *s,
                          const struct plait_train_args *args)
{
    const char *const given[][2] = {{"--resume", args->resume},
                                    {"--resume-anyway", args->anyway},
                                    {"--init", args->init},
                                    {"--sample-prompt", args->prompt}};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (!out)
        return NULL;
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
        fprintf(out, "%s=%s\n", given[i][0],
                given[i][1] ? given[i][1] : "not given");
    fprintf(out, "--sample=%lld\n", (long long)args->sample);
    for (int i = 0; i < args->nwords; i++)
        fprintf(out, "argument %d=%s\n", i + 1, args->words[i]);
    plait_settings_print_all(s->config, out);
    if (fclose(out) == 0)
        return text;
    free(text);
    return NULL;
}

/* Collective: nothing that depends on the settings may come before this. */
static int compare_settings(const struct plait_session *s,
                            const struct plait_train_args *args,
                            struct plait_error *err)
{
    char *text = describe_run(s, args);
    int rc = plait_agree_on_text(s->world.comm, text, err);

    free(text);
    return rc;
}

/* -- layout -------------------------------------------------------------- */

/* What would make two equal runs differ is turned off, or refused where the
 * user asked for it. */
static int require_determinism(const struct plait_session *s,
                               struct plait_error *err)
{
    const char *attention = getenv("PLAIT_ATTENTION");

    if (!s->config->train.deterministic || !s->world.ops->gpu)
        return 0;
    if (attention && strcmp(attention, "own") != 0)
        return plait_errorf(err,
                            "train.deterministic: PLAIT_ATTENTION=%s adds in "
                            "another order in each run; set it to own",
                            attention);
    setenv("PLAIT_ATTENTION", "own", 1);
    return 0;
}

/* The plan decides; a configuration that says otherwise is refused. */
static int follow_launch(struct plait_session *s, struct plait_layout *layout,
                         struct plait_error *err)
{
    *layout = s->world.launch.layout;
    for (int axis = 0; axis < PLAIT_NAXES; axis++) {
        int want = s->config->parallel.layout.size[axis];

        if (s->config->sizes_given & 1u << axis && want != PLAIT_AUTO &&
            want != layout->size[axis])
            return plait_errorf(err,
                                "parallel.%s is %d, but the job was started "
                                "with %s %d: leave it out of the "
                                "configuration, or use srun --%s=%d",
                                plait_axis_names[axis], want,
                                plait_axis_names[axis], layout->size[axis],
                                plait_axis_names[axis], want);
    }
    return 0;
}

/* Only one size can follow from the number of ranks. */
static int check_open(const struct plait_layout *layout,
                      struct plait_error *err)
{
    const char *open = NULL;

    for (int axis = 0; axis < PLAIT_NAXES; axis++) {
        if (axis == PLAIT_EP || layout->size[axis] != PLAIT_AUTO)
            continue;
        if (open) {
            errno = EINVAL;
            return plait_errorf(err,
                                "parallel.%s and parallel.%s are auto, but "
                                "only one size can follow from the number of "
                                "ranks; give a number for one of them (dp is "
                                "auto unless it is given), or let plait plan "
                                "--auto choose",
                                open, plait_axis_names[axis]);
        }
        open = plait_axis_names[axis];
    }
    return 0;
}

/* A layout of several processes, and the program was started by itself. */
static int refuse_alone(const struct plait_layout *layout,
                        struct plait_error *err)
{
    char sizes[96], keys[160] = "";
    int n = plait_layout_given(layout);
    size_t used = 0;

    plait_layout_format_sizes(layout->size, sizes, sizeof(sizes));
    for (int i = 0; i < PLAIT_NAXES && used < sizeof(keys); i++)
        if (layout->size[i] > 1)
            used += (size_t)snprintf(keys + used, sizeof(keys) - used,
                                     "%sparallel.%s %d", used ? ", " : "",
                                     plait_axis_names[i], layout->size[i]);
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: that is for %d processes, and this is one; plait "
                        "run --np %d %s -- plait-train CONFIG.yaml starts as "
                        "many on this machine",
                        keys, n, n, sizes);
}

static int follow_config(struct plait_session *s, struct plait_layout *layout,
                         struct plait_error *err)
{
    *layout = s->config->parallel.layout;
    if (check_open(layout, err) < 0)
        return -1;
    if (plait_comm_size(s->world.comm) == 1 && plait_layout_given(layout) > 1)
        return refuse_alone(layout, err);
    return plait_layout_resolve(layout, plait_comm_size(s->world.comm), err);
}

static int resolve_layout(struct plait_session *s, struct plait_layout *layout,
                          struct plait_error *err)
{
    if (s->world.planned ? follow_launch(s, layout, err) < 0
                         : follow_config(s, layout, err) < 0)
        return -1;
    s->config->parallel.layout = *layout;
    if (plait_fits_trainer(s->config, err) < 0 ||
        plait_fits_end_token(s->config, err) < 0)
        return -1;
    return plait_fits(s->config, layout, err);
}

/* An id of this node, equal on all of its ranks. Without a plan it comes from
 * the node's name. The same holds where spare processes may take seats: their
 * plan is that of another node. */
static uint64_t node_id(const struct plait_session *s)
{
    const char *node = getenv("SLURMD_NODENAME");
    char name[256] = "";

    if (s->world.planned && !plait_world_elastic())
        return s->world.launch.node_rank;
    gethostname(name, sizeof(name) - 1);
    return plait_hash_text(PLAIT_HASH_START, node ? node : name);
}

/* An id of the NVLink domain that this rank is in: with a GPU as NVML has it,
 * and only where GPUs of other nodes can be reached (IMEX), as a block of the
 * fabric need not be one; else as the plan's fabric has it. Where there is
 * none, that of the node. */
static uint64_t domain_id(const struct plait_session *s)
{
    const struct plait_launch *launch = &s->world.launch;
    struct plait_domain found = {.state = PLAIT_DOMAIN_NONE};

    if (s->world.ops->gpu)
        plait_domain_find(&found);
    if (found.state == PLAIT_DOMAIN_READY && found.imex)
        return plait_hash_text(PLAIT_HASH_START, found.name);
    if (!s->world.ops->gpu && s->world.planned && !plait_world_elastic() &&
        launch->domain > 0)
        return (uint64_t)launch->domain << 32;
    return node_id(s);
}

#define EXPERTS_USE (1u << PLAIT_GROUP_EP | 1u << PLAIT_GROUP_EXPERT_DP)

static int open_mesh(struct plait_session *s, const struct plait_layout *layout,
                     const struct plait_figures *figures,
                     struct plait_error *err)
{
    uint64_t domain = domain_id(s);

    plait_comm_set_network(s->world.comm, &figures->network, domain);
    s->mesh = plait_mesh_create(s->world.ops, s->world.dev, s->world.comm,
                                layout, err);
    if (plait_error_consensus(s->world.comm, s->mesh ? 0 : -1, err) < 0)
        return -1;
    s->mesh->node = node_id(s);
    s->mesh->domain = domain;
    s->mesh->listeners.record = plait_comm_record(s->world.comm);
    s->mesh->gpu = figures->gpu;
    s->mesh->facts = s->world.gpu;
    if (s->config->model.experts &&
        plait_error_consensus(
            s->world.comm, plait_mesh_need(s->mesh, EXPERTS_USE, err), err) < 0)
        return -1;
    if (plait_sync_parts(&s->config->sync) &&
        plait_error_consensus(
            s->world.comm, plait_mesh_need(s->mesh, 1u << PLAIT_GROUP_DP, err),
            err) < 0)
        return -1;
    return plait_error_consensus(
        s->world.comm, plait_mesh_divide(s->mesh, &s->config->parallel, err),
        err);
}

/* -- life ---------------------------------------------------------------- */

/* A single process waits for no other one. Collective. */
static int open_watch(struct plait_session *s, struct plait_error *err)
{
    if (plait_comm_size(s->world.comm) > 1)
        s->dog = plait_watchdog_create(s->world.comm, s->hang, err);
    if (s->elastic)
        plait_watchdog_spare(s->dog);
    return plait_error_consensus(
        s->world.comm, s->dog || plait_comm_size(s->world.comm) == 1 ? 0 : -1,
        err);
}

int plait_session_complete(struct plait_session *s,
                           const struct plait_train_args *args,
                           struct plait_error *err)
{
    struct plait_figures figures;
    struct plait_layout layout;
    int rc;

    s->hang = plait_hang_create(&s->world, err);
    if (!s->hang || open_watch(s, err) < 0 || read_config(s, args, err) < 0 ||
        compare_settings(s, args, err) < 0)
        return -1;
    plait_watchdog_limit_phases(s->dog, s->config->train.phase_timeout);
    plait_watchdog_limit_steps(s->dog, s->config->train.timeout, 1);
    if (plait_first_weights_find(s, args, err) < 0 ||
        plait_data_vocab_find(s, args, err) < 0)
        return -1;
    rc = resolve_layout(s, &layout, err);
    if (rc == 0)
        rc = require_determinism(s, err);
    if (plait_error_consensus(s->world.comm, rc, err) < 0)
        return -1;
    if (plait_figures_find(&s->world, &layout, &figures, err) < 0)
        return -1;
    return open_mesh(s, &layout, &figures, err);
}

/* Until NCCL's world is there a rank may hang in a driver or a network. The
 * run's watch needs that world: so another one watches the ranks that have met.
 * Collective. */
static int connect_watched(struct plait_session *s, const char *device,
                           const char *comm, struct plait_error *err)
{
    struct plait_comm *met = s->world.all;
    struct plait_hang *hang = plait_hang_create(&s->world, err);
    struct plait_watchdog *dog = NULL;
    int rc = hang ? 0 : -1;

    if (rc == 0) {
        dog = plait_watchdog_create(met, hang, err);
        plait_watchdog_limit_phases(dog, plait_world_patience());
        rc = plait_error_consensus(met, dog ? 0 : -1, err);
    }
    if (rc == 0)
        rc = plait_world_connect(&s->world, device, comm, err);
    plait_watchdog_destroy(dog);
    plait_comm_set_record(met, NULL);
    plait_hang_destroy(hang);
    return rc;
}

static int open_world(struct plait_session *s,
                      const struct plait_train_args *args,
                      struct plait_error *err)
{
    const char *comm = args->comm ? args->comm : "auto";

    if (plait_world_meet(&s->world, args->device, comm, err) < 0)
        return -1;
    return plait_world_waits_for_nccl(&s->world, comm)
               ? connect_watched(s, args->device, comm, err)
               : plait_world_connect(&s->world, args->device, comm, err);
}

static void say(const char *line)
{
    if (line)
        fprintf(stderr, "plait-train: %s\n", line);
}

int plait_session_open(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err)
{
    memset(s, 0, sizeof(*s));
    s->opened = plait_clock_unix();
    if (open_world(s, args, err) < 0)
        return -1;
    say(plait_world_exposed(&s->world));
    if (!s->world.comm)
        return 0;
    if (plait_comm_rank(s->world.comm) == 0) {
        say(plait_world_lone_gpu(&s->world));
        say(plait_comm_remark(s->world.comm));
    }
    if (plait_session_complete(s, args, err) < 0 ||
        plait_mesh_try_links(s->mesh, &s->links, err) < 0)
        return -1;
    say(*s->links.slow ? s->links.slow : NULL);
    return 0;
}

void plait_session_close(struct plait_session *s)
{
    plait_mesh_destroy(s->mesh);
    free(s->config_text);
    free(s->init);
    plait_claims_release(s->claims);
    plait_watchdog_destroy(s->dog);
    plait_world_close(&s->world);
    /* Until then the watch over other ranks may read it. */
    plait_job_config_destroy(s->config);
    plait_hang_destroy(s->hang);
}

const char *plait_session_metrics(const struct plait_session *s,
                                  const struct plait_train_args *args)
{
    return args->metrics ? args->metrics : s->config->log.metrics;
}
