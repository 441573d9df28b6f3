/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <stdlib.h>
#include <unistd.h>

/* Slurm finds these by name, so they are the only symbols exported. */
SPANK_PLUGIN(plait, 1)

/* Slurm's callbacks carry no pointer of ours. In slurmstepd this is filled
 * before the tasks are forked, and they inherit it. */
static struct {
    struct plait_options options;
    struct plait_error error; /* why no task of this step may start */
    int failed;
    struct plait_remote *remote;
} state;

static int option_callback(int value, const char *argument, int remote)
{
    struct plait_error err;

    if (plait_options_set(&state.options, (enum plait_option)value, argument,
                          &err) == 0)
        return 0;
    if (!remote) {
        slurm_error("plait: %s", err.text);
        return -1;
    }
    /* Failing here would drain the node or be lost in slurmd's log. */
    if (!state.failed)
        state.error = err;
    state.failed = 1;
    state.options.given |= 1u << (value % PLAIT_NOPTIONS);
    return 0;
}

int slurm_spank_init(spank_t spank, int ac, char **av)
{
    spank_context_t context = spank_context();

    (void)ac;
    (void)av;
    plait_options_init(&state.options);
    if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR &&
        context != S_CTX_REMOTE)
        return 0;
    for (int i = 0; i < PLAIT_NOPTIONS; i++) {
        const struct plait_option_text *text = &plait_option_texts[i];
        struct spank_option option = {
            .name = (char *)text->name,
            .arginfo = (char *)text->argument,
            .usage = (char *)text->help,
            .has_arg = text->argument != NULL,
            .val = i,
            .cb = option_callback,
        };

        if (spank_option_register(spank, &option) != ESPANK_SUCCESS) {
            slurm_error("plait: cannot register --%s", text->name);
            return -1;
        }
    }
    return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int ac, char **av)
{
    struct plait_error err;

    (void)spank;
    (void)ac;
    (void)av;
    if (!state.options.given || spank_context() == S_CTX_REMOTE)
        return 0;
    if (plait_local_check(&state.options, &err) == 0)
        return 0;
    slurm_error("plait: %s", err.text);
    /* A return value would be dropped where plugstack.conf says "optional",
     * and the job submitted. Nothing is held yet at this point. */
    exit(1);
}

int slurm_spank_local_user_init(spank_t spank, int ac, char **av)
{
    struct plait_error err;

    (void)ac;
    (void)av;
    if (!state.options.given)
        return 0;
    if (plait_local_plan(spank, &state.options, &err) == 0)
        return 0;
    slurm_error("plait: %s", err.text);
    return -1;
}

/* Batch scripts, salloc's shell and the extern step are no ranks. */
static int is_plain_step(spank_t spank)
{
    uint32_t step = 0;

    return spank_get_item(spank, S_JOB_STEPID, &step) == ESPANK_SUCCESS &&
           step < SLURM_MAX_NORMAL_STEP_ID;
}

int slurm_spank_user_init(spank_t spank, int ac, char **av)
{
    (void)ac;
    (void)av;
    if (!state.options.given || !is_plain_step(spank) || state.failed)
        return 0;
    state.remote = plait_remote_create(spank, &state.options, &state.error);
    /* srun would end with 0 if this call failed; the tasks fail instead. */
    state.failed = !state.remote;
    return 0;
}

int slurm_spank_task_init(spank_t spank, int ac, char **av)
{
    int local = 0;

    (void)ac;
    (void)av;
    if (!state.options.given || !is_plain_step(spank))
        return 0;
    if (!state.failed)
        state.failed = !state.remote ||
                       plait_remote_task(state.remote, spank, &state.error) < 0;
    if (!state.failed)
        return 0;
    /* one line a node, not one a task */
    if (spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS ||
        local == 0)
        slurm_error("plait: %s", state.error.text);
    /* This is the forked task, and Slurm drops an optional plugin's return
     * value: without its seat the program must not start. */
    _exit(1);
}

int slurm_spank_exit(spank_t spank, int ac, char **av)
{
    (void)spank;
    (void)ac;
    (void)av;
    plait_remote_destroy(state.remote);
    state.remote = NULL;
    return 0;
}
