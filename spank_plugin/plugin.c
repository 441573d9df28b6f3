/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/plugin.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "spank_plugin/slurm_options.h"
#include "spank_plugin/spares.h"
#include "spank_plugin/twice.h"
#include "topology/start/preflight.h"

/* Slurm finds these by name, so they are the only symbols exported. */
SPANK_PLUGIN(plait, 1)

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
/* Where the plugin is required and cannot begin, its job ends: Slurm's default
 * would drain the node. */
int slurm_spank_init_failure_mode = ESPANK_JOB_FAILURE;
#endif

/* Callbacks that Slurm makes for each line of plugstack.conf. */
enum phase { POST_OPT, LOCAL_USER, USER, POST_FORK, TASK, NPHASES };

/* Slurm's callbacks take no context pointer, so the state is static. In
 * slurmstepd it is filled before the tasks are forked, and they inherit it. */
static struct {
    struct plait_options options;
    struct plait_plugstack plugstack;
    struct plait_discovery discovery;
    struct plait_error error; /* why no task of this step may start */
    int failed;
    int silent; /* srun or another node prints the reason */
    struct plait_remote *remote;
    struct plait_agreement_call call; /* to srun */
    /* srun, sbatch and salloc */
    struct plait_site *site;
    unsigned inherited; /* flags of the job that this command runs in */
    unsigned named;     /* flags given to this command itself */
    unsigned jobs;      /* ... that it has from the job */
    int job_tasks;      /* of the job that this command runs in; 0: unknown */
    int components;     /* of the requested job, counted so far */
    int entries;        /* how often plugstack.conf lists this file */
    int ignored;        /* another file of this plugin does the work */
    unsigned calls[NPHASES];
    uint16_t ports[2]; /* SrunPortRange; 0: any */
    struct plait_agreement *agreement;
} state;

/* Is this call for a line of plugstack.conf that is ignored? */
static bool is_surplus(enum phase phase)
{
    return state.ignored ||
           (state.entries > 1 &&
            state.calls[phase]++ % (unsigned)state.entries != 0);
}

/* The line that says so: in slurmd's log, and to whoever uses the flags. */
static void report_twice(void)
{
    int first = 1;
    const char *other = plait_twice_other(&first);

    if (other)
        slurm_info("plait: plugstack.conf loads this plugin twice, %s and %s; "
                   "the second is ignored",
                   first ? plait_twice_own() : other,
                   first ? other : plait_twice_own());
    else if (state.entries > 1)
        slurm_info("plait: plugstack.conf lists %s twice; the second line is "
                   "ignored",
                   plait_twice_own());
}

/* Slurm passes a job's flags to the commands inside it through their
 * environment, and calls back for those before it reads their own. */
static unsigned find_inherited(void)
{
    unsigned found = 0;
    char name[96];

    for (int i = 0; i < PLAIT_NOPTIONS; i++) {
        int n = snprintf(name, sizeof(name),
                         "SLURM_SPANK__SLURM_SPANK_OPTION_plait_%s",
                         plait_option_flag((enum plait_option)i));

        for (int k = 0; k < n; k++)
            if (!isalnum((unsigned char)name[k]))
                name[k] = '_';
        if (getenv(name))
            found |= 1u << i;
    }
    return found;
}

/* Without the plugin srun takes --ep for --epilog, whose value is a path. */
static bool is_epilog(int option, const char *argument)
{
    return option == PLAIT_EP && spank_context() != S_CTX_ALLOCATOR &&
           argument && (strchr(argument, '/') || strcmp(argument, "none") == 0);
}

static int option_callback(int value, const char *argument, int remote)
{
    unsigned bit = 1u << (value % PLAIT_NOPTIONS);
    struct plait_error err;

    if (is_epilog(value, argument))
        return remote ? 0 : plait_slurm_options_set("epilog", argument);
    if (state.inherited & bit)
        state.inherited &= ~bit;
    else
        state.named |= bit;
    if (plait_options_set(&state.options, (enum plait_option)value, argument,
                          &err) == 0)
        return 0;
    if (!remote) {
        slurm_error("plait: %s", err.text);
        return -1;
    }
    /* A failure here would drain the node, or only reach slurmd's log: the
     * error is kept for the tasks to report. */
    if (!state.failed)
        state.error = err;
    state.failed = 1;
    state.options.given |= bit;
    return 0;
}

static void log_complaint(void *arg, const char *text)
{
    (void)arg;
    slurm_error("plait: plugstack.conf: %s", text);
}

static void drop_complaint(void *arg, const char *text)
{
    (void)arg;
    (void)text;
}

static void register_options(spank_t spank)
{
    for (int i = 0; i < PLAIT_NOPTIONS; i++) {
        const struct plait_option_text *text = &plait_option_texts[i];
        struct spank_option option = {
            .name = (char *)plait_option_flag((enum plait_option)i),
            .arginfo = (char *)text->argument,
            .usage = (char *)text->help,
            .has_arg = text->argument != NULL,
            .val = i,
            .cb = option_callback,
        };

        if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
            slurm_error("plait: cannot register --%s", option.name);
            return;
        }
    }
}

/* 1: this call is the first, and no other file of this plugin does the work. */
static bool is_first_load(spank_context_t context)
{
    int first = 1;

    if (state.entries++ > 0) {
        if (state.entries == 2 && context == S_CTX_SLURMD)
            report_twice();
        return false;
    }
    if (!plait_twice_other(&first) || first)
        return true;
    state.ignored = 1;
    if (context == S_CTX_SLURMD)
        report_twice();
    return false;
}

int slurm_spank_init(spank_t spank, int ac, char **av)
{
    spank_context_t context = spank_context();

    if (!is_first_load(context))
        return 0;
    memset(&state, 0, sizeof(state));
    state.entries = 1;
    plait_options_init(&state.options);
    plait_plugstack_parse(
        &state.plugstack, ac, av,
        context == S_CTX_SLURMD ? log_complaint : drop_complaint, NULL);
    state.discovery.plugstack = &state.plugstack;
    plait_agreement_init(&state.call);
    if (context == S_CTX_SLURMD)
        plait_discovery_start_node(&state.plugstack);
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR &&
        context != S_CTX_REMOTE)
        return 0;
    if (context != S_CTX_REMOTE) {
        state.inherited = find_inherited();
        state.job_tasks = plait_slurm_job_tasks();
    }
    register_options(spank);
    return 0; /* a failure would drain the node where the plugin is required */
}

/* Batch scripts, salloc's shell and the extern step have no ranks. */
static bool is_plain_step(spank_t spank)
{
    uint32_t step = 0;

    return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
           step < SLURM_MAX_NORMAL_STEP_ID;
}

static void report_error(struct plait_error *err)
{
    if (state.named)
        plait_options_name_owners(&state.options, state.named, state.jobs, err);
    slurm_error("plait: %s", err->text);
}

/* A small step inside a job ("srun -n1 hostname") inherits the job's flags
 * without having been given any: where they do not fit, it has no layout. */
static bool may_decline(int tasks, const struct plait_error *err)
{
    if (state.named || tasks < 1 || tasks == state.job_tasks)
        return false;
    slurm_info("plait: the job's layout does not fit this step of %d "
               "task%s, which starts without one (%s)",
               tasks, tasks == 1 ? "" : "s", err->text);
    state.options.given = 0;
    if (spank_context() == S_CTX_LOCAL)
        plait_local_decline();
    return true;
}

static int check_local(struct plait_error *err)
{
    struct plait_slurm_options slurm;

    plait_site_destroy(state.site);
    state.site = NULL;
    if (plait_plugstack_apply(&state.plugstack, &state.options, err) == 0 &&
        plait_plugstack_site(&state.plugstack, &state.site, err) == 0 &&
        plait_local_check(&state.options, state.site, state.components, err) ==
            0)
        return 0;
    plait_slurm_options_read(&slurm);
    return may_decline(slurm.tasks, err) ? 0 : -1;
}

/* A line of slurmd's log for each planned step: who uses the flags. The sizes
 * are those of the flags; --model chooses those that are "auto" here. */
static void log_step(spank_t spank)
{
    uint32_t job = 0, step = 0, nodes = 0, tasks = 0;
    struct plait_layout layout;
    char sizes[80];
    uid_t uid = 0;

    if (plait_remote_plan_is(spank, PLAIT_NO_PLAN) ||
        plait_remote_plan_is(spank, PLAIT_REFUSED_PLAN))
        return;
    spank_get_item(spank, S_JOB_ID, &job);
    spank_get_item(spank, S_JOB_STEPID, &step);
    spank_get_item(spank, S_JOB_NNODES, &nodes);
    spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks);
    spank_get_item(spank, S_JOB_UID, &uid);
    plait_options_layout(&state.options, &layout);
    plait_layout_resolve(&layout, (int)tasks, NULL);
    plait_layout_format_sizes(layout.size, sizes, sizeof(sizes));
    slurm_info("plait: step %u.%u of uid %u: %s, %u tasks on %u nodes%s", job,
               step, (unsigned)uid, sizes, tasks, nodes,
               state.options.measure_only ? ", a preflight" : "");
}

/* As root, before the tasks' cgroups exist. Errors here reach only slurmd's
 * log, and must not fail the step. */
static void start_step(spank_t spank)
{
    if (!is_plain_step(spank))
        return;
    state.options.measure_only = plait_remote_is_preflight(spank);
    if (!state.failed && plait_plugstack_apply(&state.plugstack, &state.options,
                                               &state.error) < 0)
        state.failed = 1;
    log_step(spank);
    if (!state.failed && state.options.pin)
        plait_discovery_start_step(&state.discovery);
}

/* In srun, before it makes the step. 0, or the status with which srun must exit
 * instead. */
static int settle_step(struct plait_error *err)
{
    int status;

    if (!state.options.given)
        return 0;
    status = plait_spares_choose(&state.options, err);
    if (status == 0)
        plait_local_set_defaults(&state.options, state.ports);
    return status;
}

/* salloc's shell has no ranks, whatever the flags of its job say. */
static int starts_shell(void)
{
    struct plait_slurm_options slurm;

    plait_slurm_options_read(&slurm);
    return slurm.interactive;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
    spank_context_t context = spank_context();
    struct plait_error err;
    int status = 1;

    (void)ac;
    (void)av;
    if (is_surplus(POST_OPT))
        return 0;
    /* Called once for each component of a heterogeneous job. */
    if (state.components++ == 0 && context != S_CTX_REMOTE)
        plait_local_forget();
    if (context == S_CTX_ALLOCATOR)
        plait_local_mark(0);
    if (!state.options.given)
        return 0;
    if (context == S_CTX_REMOTE) {
        start_step(spank);
        return 0;
    }
    if (context == S_CTX_LOCAL && starts_shell())
        return 0;
    report_twice();
    state.jobs = state.options.given & ~state.named;
    plait_spares_begin(&state.options);
    if (check_local(&err) == 0)
        status = context == S_CTX_LOCAL ? settle_step(&err) : 0;
    if (status == 0) {
        plait_local_mark(state.options.given);
        return 0;
    }
    report_error(&err);
    /* A return value would be dropped where plugstack.conf says "optional",
     * and the job submitted. Nothing is held yet at this point. */
    exit(status);
}

int slurm_spank_local_user_init(spank_t spank, int ac, char **av)
{
    struct plait_error err;
    uint32_t tasks = 0;

    (void)ac;
    (void)av;
    if (is_surplus(LOCAL_USER) || !is_plain_step(spank))
        return 0;
    if (state.options.given) {
        plait_agreement_end(state.agreement);
        state.agreement = plait_local_plan(spank, &state.options, state.site,
                                           state.ports, &err);
        spank_get_item(spank, S_JOB_TOTAL_TASK_COUNT, &tasks);
        if (!state.agreement && !may_decline((int)tasks, &err)) {
            report_error(&err);
            state.agreement = plait_local_refuse(spank);
        }
    }
    return 0;
}

/* The user reads one line for the whole step: srun prints it, or the step's
 * first node where srun lacks the plugin. */
static void agree(spank_t spank)
{
    uint32_t node = 0;

    switch (plait_remote_hear(state.remote, spank, &state.call, &state.error)) {
    case PLAIT_GO:
        return;
    case PLAIT_ALONE:
        spank_get_item(spank, S_JOB_NODEID, &node);
        state.silent = state.silent || node != 0;
        return;
    case PLAIT_CUT:
        break;
    default:
        state.silent = 1;
    }
    state.failed = 1;
}

int slurm_spank_user_init(spank_t spank, int ac, char **av)
{
    (void)ac;
    (void)av;
    if (is_surplus(USER) || !state.options.given || !is_plain_step(spank))
        return 0;
    if (plait_remote_plan_is(spank, PLAIT_NO_PLAN)) {
        state.options.given = 0;
        return 0;
    }
    /* srun would end with 0 if this call failed; the tasks fail instead. */
    if (plait_remote_plan_is(spank, PLAIT_REFUSED_PLAN)) {
        state.failed = state.silent = 1;
        return 0;
    }
    if (!state.failed) {
        state.remote = plait_remote_create(spank, &state.options,
                                           &state.discovery, &state.error);
        state.failed = !state.remote;
    }
    plait_remote_call(state.remote, spank, &state.call, &state.error);
    return 0;
}

/* Once the last task is forked: what the tasks wait at is theirs. */
int slurm_spank_task_post_fork(spank_t spank, int ac, char **av)
{
    int local = 0;
    uint32_t tasks = 0;

    (void)ac;
    (void)av;
    if (is_surplus(POST_FORK) || !state.options.given)
        return 0;
    if (spank_get_item(spank, S_TASK_ID, &local) == ESPANK_SUCCESS &&
        spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks) ==
            ESPANK_SUCCESS &&
        (uint32_t)local + 1 == tasks)
        plait_agreement_close(&state.call);
    return 0;
}

int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
    int local = 0, status;

    (void)ac;
    (void)av;
    if (is_surplus(TASK) || !state.options.given || !is_plain_step(spank))
        return 0;
    /* The signals that cancel a step pass over processes called slurmstepd
     * (proctrack/linuxproc). The command gets its own name. */
    prctl(PR_SET_NAME, "plait-waits");
    agree(spank);
    if (!state.failed)
        state.failed = !state.remote ||
                       plait_remote_task(state.remote, spank, &state.error) < 0;
    if (!state.failed) {
        status = plait_remote_preflight(state.remote, spank);
        if (status >= 0)
            _exit(status);
        return 0;
    }
    /* one line a node, not one a task */
    if (!state.silent &&
        (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS ||
         local == 0))
        slurm_error("plait: %s", state.error.text);
    /* This is the forked task, and Slurm drops an optional plugin's return
     * value: without its rank and binding the program must not start. */
    _exit(1);
}

int slurm_spank_exit(spank_t spank, int ac, char **av)
{
    (void)spank;
    (void)ac;
    (void)av;
    plait_agreement_end(state.agreement);
    state.agreement = NULL;
    plait_agreement_close(&state.call);
    plait_remote_destroy(state.remote);
    state.remote = NULL;
    plait_site_destroy(state.site);
    state.site = NULL;
    state.entries = 0;
    return 0;
}
