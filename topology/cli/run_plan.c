/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of plait run: made or taken over, shown, and told to its tasks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/run.h"
#include "topology/layout/launch.h"
#include "topology/start/request.h"
#include "topology/start/scontrol.h"
#include "topology/start/show_plan.h"
#include "topology/start/switches.h"

/* The nodes are in the order of their first tasks; a plan's are in Slurm's. */
int run_plan_order(const struct run_place *place, struct plait_plan *plan)
{
    size_t n = (size_t)plan->nnodes, size = n * sizeof(int);
    int *old = malloc(3 * size);

    if (!old)
        return -1;
    memcpy(old, plan->node_rank, size);
    memcpy(old + n, plan->first_rank, size);
    memcpy(old + 2 * n, plan->tasks, size);
    for (size_t i = 0; i < n; i++) {
        int id = place->ids[i];

        plan->node_rank[id] = old[i];
        plan->first_rank[id] = old[n + i];
        plan->tasks[id] = old[2 * n + i];
    }
    free(old);
    return 0;
}

static void show_plan(const struct run *run, const struct plait_fabric *fabric)
{
    const struct run_place *place = &run->place;
    const char **names = calloc((size_t)place->nnodes, sizeof(*names));

    if (!names)
        return;
    for (int i = 0; i < place->nnodes; i++)
        names[place->ids[i]] = place->names[i];
    plait_show_plan(stderr, run->plan, names, fabric, NULL);
    free(names);
}

/* The plan's nodes are in the order of their tasks still. */
static void tell_ranks(const struct run *run)
{
    const char *name = strrchr(run->command[0], '/');
    char text[512];

    name = name ? name + 1 : run->command[0];
    if (run->place.slurm && run->place.first && !plait_show_is_quiet() &&
        (!run->site || run->site->rank_warning) &&
        strcmp(name, "plait-train") != 0 &&
        plait_show_ranks(run->plan, NULL,
                         run->options.rendezvous ? "RANK" : PLAIT_ENV_RANK,
                         text, sizeof(text)))
        fprintf(stderr, "plait: %s\n", text);
}

static int make_plan(struct run *run, struct plait_error *err)
{
    const struct run_place *place = &run->place;
    struct plait_plan_request plan_request = {
        .nnodes = place->nnodes,
        .nodes = (const char *const *)place->names,
        .tasks = place->tasks,
    };
    struct plait_fabric *fabric = NULL;
    struct plait_job_request request;
    struct plait_error warning;
    int rc = -1;

    if (plait_job_request_open(&request, &run->options, run->site, err) < 0 ||
        plait_job_request_to_plan(&request, &plan_request, err) < 0)
        goto error;
    if (place->slurm) {
        fabric = plait_switches_ask(&plan_request,
                                    getenv("SLURM_JOB_PARTITION"), &warning);
        if (warning.text[0] && place->first)
            fprintf(stderr, "plait: warning: %s\n", warning.text);
    }
    run->plan = plait_plan_create(&plan_request, err);
    if (!run->plan)
        goto error;
    if (plait_plan_check_order(run->plan, plan_request.nodes, &warning) < 0 &&
        place->first)
        fprintf(stderr, "plait: warning: %s\n", warning.text);
    tell_ranks(run);
    rc = run_plan_order(place, run->plan);
    if (rc < 0)
        plait_errorf(err, "out of memory");
    else if (run->options.show_plan && place->first)
        show_plan(run, fabric);
error:
    plait_fabric_destroy(fabric);
    plait_job_request_close(&request);
    return rc;
}

static void find_master(struct run *run)
{
    const char *given = getenv(PLAIT_ENV_MASTER_ADDR);
    const struct run_place *place = &run->place;
    char *host = run->master;
    size_t size = sizeof(run->master);

    snprintf(host, size, "%s", given && !place->slurm ? given : "127.0.0.1");
    for (int i = 0; i < place->nnodes; i++)
        if (run->plan->first_rank[place->ids[i]] != 0)
            continue;
        else if (place->slurm)
            plait_scontrol_address(place->names[i], host, size);
        else if (place->named && !given)
            snprintf(host, size, "%s", place->names[i]);
}

int run_find_port(const struct run *run, const int *out)
{
    int rank = 0, old = 0;

    if (!run->ports)
        return 0;
    while (run->plan->first_rank[rank] != 0)
        rank++;
    for (; out; old++)
        if (!out[old] && rank-- == 0)
            return run->ports[old];
    return run->ports[rank];
}

int run_plan(struct run *run, struct plait_error *err)
{
    plait_plan_destroy(run->plan);
    free(run->code);
    run->plan = NULL;
    run->code = NULL;
    if (run->place.slurm && run_place_ask(&run->place, err) < 0)
        return -1;
    if (run_spares_keep(run, err) < 0)
        return -1;
    if ((run->spares ? run_spares_plan(run, err) : make_plan(run, err)) < 0)
        return -1;
    run->code = plait_plan_encode(run->plan);
    if (!run->code)
        return plait_errorf(err, "out of memory");
    if (run->options.rendezvous)
        find_master(run);
    return 0;
}

int run_plan_adopt(struct run *run, struct plait_error *err)
{
    const struct run_place *place = &run->place;
    int id = place->id;

    /* A spare node takes the part of the last node with RANKs, whose place it
     * may take. */
    if (run->seated && id >= run->seated)
        id = run->seated - 1;
    if (plait_plan_decode_part(run->code, id, &run->part, err) < 0)
        return -1;
    if (place->local < run->part.tasks || run->elastic)
        return 0;
    return plait_errorf(err, "SLURM_LOCALID and SLURM_NODEID are not this "
                             "step's");
}
