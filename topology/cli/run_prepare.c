/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/base/secret.h"
#include "topology/cli/commands.h"
#include "topology/cli/run.h"
#include "topology/node/cache.h"
#include "topology/start/port.h"
#include "topology/start/preflight.h"
#include "topology/start/request.h"
#include "topology/start/scontrol.h"
#include "topology/start/show_plan.h"

enum { DISCOVERY_SECONDS = 60 };

/* ---- the environment of this process ---- */

/* Where no launcher chose GPUs, all of the machine are there, or those that
 * the user made visible. */
static int get_variable(void *arg, const char *name, char *buf, size_t size)
{
    const struct run *run = arg;
    const char *value = getenv(name);

    buf[0] = '\0';
    if (!value && !run->place.slurm && strcmp(name, "SLURM_JOB_GPUS") != 0 &&
        (strcmp(name, "SLURM_STEP_GPUS") == 0 ||
         strcmp(name, run->seats.variable) == 0))
        value = run->gpus;
    if (!value || strlen(value) >= size) {
        errno = value ? ERANGE : ENOENT;
        return -1;
    }
    memcpy(buf, value, strlen(value) + 1);
    return 0;
}

static int set_variable(void *arg, const char *name, const char *value)
{
    (void)arg;
    return setenv(name, value, 1);
}

/* ---- the plan ---- */

/* The nodes are in the order of their first tasks; a plan's are in Slurm's. */
static int order_by_id(const struct run_place *place, struct plait_plan *plan)
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
    plait_show_plan(stderr, run->plan, names, fabric);
    free(names);
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
    if (place->slurm && place->nnodes > 2 &&
        run->options.placement == PLAIT_PLACE_TOPOLOGY) {
        plan_request.fabric = fabric = plait_scontrol_fabric(err);
        if (!fabric)
            goto error;
    }
    run->plan = plait_plan_create(&plan_request, err);
    if (!run->plan)
        goto error;
    if (plait_plan_check_order(run->plan, plan_request.nodes, &warning) < 0 &&
        place->rank == 0)
        fprintf(stderr, "plait: warning: %s\n", warning.text);
    rc = order_by_id(place, run->plan);
    if (rc < 0)
        plait_errorf(err, "out of memory");
    else if (run->options.show_plan && place->rank == 0)
        show_plan(run, fabric);
error:
    plait_fabric_destroy(fabric);
    plait_job_request_close(&request);
    return rc;
}

/* ---- what the tasks of this node share ---- */

static void find_master(const struct run *run, char *host, size_t size)
{
    const char *given = getenv(PLAIT_ENV_MASTER_ADDR);
    const struct run_place *place = &run->place;

    snprintf(host, size, "%s", given && !place->slurm ? given : "127.0.0.1");
    for (int i = 0; i < place->nnodes; i++)
        if (run->plan->first_rank[place->ids[i]] != 0)
            continue;
        else if (place->slurm)
            plait_scontrol_address(place->names[i], host, size);
        else if (place->named && !given)
            snprintf(host, size, "%s", place->names[i]);
}

/* The user's own, or one that all tasks compute alike; RANK 0's finds out
 * whether it is free. */
static int find_port(struct run *run, struct plait_error *err)
{
    int *port = &run->seats.launch.master_port, fd;
    int own = plait_master_read_port(getenv(PLAIT_ENV_MASTER_PORT));

    *port =
        own ? own : plait_master_port_start(run->place.job, run->place.step);
    if (run->seats.first_rank != 0 || run->place.local != 0)
        return 0;
    fd = run->place.alone && !own ? plait_master_port_take(port)
                                  : plait_master_port_hold(*port);
    run->only_here = fd < 0 && errno == EADDRINUSE;
    if (run->only_here)
        return plait_errorf(err,
                            "port %d of %s is in use; set MASTER_PORT to "
                            "a free one",
                            *port, run->seats.launch.master_addr);
    if (fd >= 0 && !run->place.alone)
        close(fd);
    return 0; /* alone: held until the tasks have ended */
}

static int find_node(struct run *run, struct plait_error *err)
{
    struct plait_task_env env = {run, get_variable, set_variable};
    struct plait_node *node = plait_node_load_cache(PLAIT_CACHEDIR, NULL);
    size_t used = 0;

    if (!node)
        node = plait_node_discover(DISCOVERY_SECONDS, err);
    run->seats.node = node;
    if (!node)
        return -1;
    for (int i = 0; i < node->ngpus && used < sizeof(run->gpus) - 8; i++)
        used += (size_t)snprintf(run->gpus + used, sizeof(run->gpus) - used,
                                 "%s%d", used ? "," : "", i);
    return plait_seats_bind_gpus(&run->seats, &env, err);
}

static int fill_seats(struct run *run, struct plait_error *err)
{
    struct plait_launch *launch = &run->seats.launch;
    const struct plait_plan *plan = run->plan;
    int id = run->place.id;

    run->seats.variable = PLAIT_ENV_VISIBLE;
    run->seats.rendezvous = run->options.rendezvous;
    run->seats.first_rank = plan->first_rank[id];
    run->seats.nccl = run->site && run->site->export.nccl_ib_hca;
    run->seats.ucx = run->site && run->site->export.ucx_net_devices;
    launch->layout = plan->layout;
    launch->world_size = plait_layout_world(&plan->layout);
    launch->local_world_size = plan->tasks[id];
    launch->nnodes = plan->nnodes;
    launch->node_rank = plan->node_rank[id];
    snprintf(launch->jobid, sizeof(launch->jobid), "%s", run->place.jobid);
    /* Where somebody else starts them, see run_secret(). */
    if (run->place.alone &&
        plait_secret_create(launch->secret, sizeof(launch->secret)) < 0)
        return plait_errorf(err, "no random numbers: %s", strerror(errno));
    if (run->place.alone && run->options.preflight &&
        plait_secret_create(run->token, sizeof(run->token)) < 0)
        return plait_errorf(err, "no random numbers: %s", strerror(errno));
    if (run->options.rendezvous) {
        find_master(run, launch->master_addr, sizeof(launch->master_addr));
        if (find_port(run, err) < 0)
            return -1;
    }
    return run->options.pin ? find_node(run, err) : 0;
}

int run_prepare(struct run *run, struct plait_error *err)
{
    const char *site = plait_site_path();

    if (site && !(run->site = plait_site_create(site, err)))
        return -1;
    return make_plan(run, err) < 0 ? -1 : fill_seats(run, err);
}

void run_release(struct run *run)
{
    plait_site_destroy(run->site);
    plait_plan_destroy(run->plan);
    plait_node_destroy(run->seats.node);
    run_place_clear(&run->place);
}

static void say_failed(void *arg, const char *text)
{
    (void)arg;
    plait_cmd_failed("%s", text);
}

static const char *own_name(const struct run_place *place)
{
    int i = 0;

    while (place->ids[i] != place->id)
        i++;
    return place->names[i];
}

static int preflight(const struct run *run, int local)
{
    struct plait_launch launch = run->seats.launch;
    struct plait_preflight preflight = {.launch = &launch,
                                        .node = own_name(&run->place),
                                        .token = run->token,
                                        .say = say_failed,
                                        .bound =
                                            plait_preflight_bound(run->site)};

    launch.local_rank = local;
    launch.rank = run->seats.first_rank + local;
    plait_layout_coord(&launch.layout, launch.rank, &launch.coord);
    return plait_preflight_run(&preflight);
}

/* What spare processes know themselves by, and the others their number. */
static int mark_spare(const struct run *run, int local)
{
    int spare = local - run->seats.launch.local_world_size + 1;
    char text[16];

    snprintf(text, sizeof(text), "%d", run->options.spares);
    if (run->options.spares ? setenv(PLAIT_ENV_SPARES, text, 1) < 0
                            : unsetenv(PLAIT_ENV_SPARES) < 0)
        return -1;
    snprintf(text, sizeof(text), "%d", spare);
    return spare > 0 ? setenv(PLAIT_ENV_SPARE, text, 1)
                     : unsetenv(PLAIT_ENV_SPARE);
}

int run_task(struct run *run, int local, struct plait_error *err)
{
    struct plait_task_env env = {run, get_variable, set_variable};
    char *code = plait_plan_encode(run->plan);
    int rc = code ? setenv(PLAIT_ENV_PLAN, code, 1) : -1, status;
    int tasks = run->seats.launch.local_world_size, spare = local >= tasks;

    free(code);
    if (rc == 0 && run->elastic)
        rc = setenv("PLAIT_ELASTIC", "1", 1);
    if (rc == 0 && run->elastic)
        rc = mark_spare(run, local);
    if (rc < 0)
        return plait_errorf(err, "out of memory");
    /* A spare one is bound as one of those whose place it may take. */
    if (plait_seats_take(&run->seats, local % tasks, &env, err) < 0)
        return -1;
    status = run->options.preflight && !spare ? preflight(run, local) : -1;
    if (status >= 0)
        _exit(status);
    execvp(run->command[0], run->command);
    return plait_errorf(err, "cannot run %s: %s", run->command[0],
                        strerror(errno));
}
