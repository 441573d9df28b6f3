/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_step.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology/layout/launch.h"

char fake_step_cache[256] = "cache=none", fake_step_site[256];

void fake_step_load(spank_context_t context)
{
    char *arguments[] = {fake_step_cache, fake_step_site};

    slurm_spank_exit(NULL, 0, NULL); /* of the previous command */
    fake_slurm_reset(context);
    slurm_spank_init(NULL, *fake_step_site ? 2 : 1, arguments);
}

void fake_step_start(void)
{
    fake_step_load(S_CTX_REMOTE);
    spank_setenv(NULL, PLAIT_ENV_PLAN,
                 "1/2.1.1.2.2/tp-cp-ep-dp-pp/topology/0,2,1,3/4*2", 1);
    spank_setenv(NULL, PLAIT_ENV_MASTER, "10.0.0.1:26234", 1);
    spank_setenv(NULL, PLAIT_ENV_KEEP, "", 1);
    fake_slurm_flag("tp", "2");
    fake_slurm_flag("pp", "2");
}

int fake_step_in_child(int (*callback)(spank_t, int, char **))
{
    int status = 0;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0)
        _exit(callback(NULL, 0, NULL) == 0 ? 0 : 2);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
