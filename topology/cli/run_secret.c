/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/cli/run.h"

/* The secret of a step that a launcher other than Slurm has started: in Slurm
 * it comes with the plan. */

void run_secret_show(const struct run *run, const char *from)
{
    if (run->options.show_plan && run->place.first)
        fprintf(stderr, "  %s: %s\n",
                *run->seats.launch.secret || getenv(PLAIT_ENV_SECRET)
                    ? "secret"
                    : "no secret",
                from);
}

int run_secret_lacks(struct run *run, const char *why, struct plait_error *err)
{
    const char *given = getenv(PLAIT_ENV_SECRET);

    if (run->place.nnodes == 1 || !run->options.rendezvous ||
        *run->seats.launch.secret || (given && *given))
        return 0;
    if (!run->open)
        return plait_errorf(
            err,
            "run: the tasks of %d nodes have no secret (%s), so that any "
            "process that reaches MASTER_PORT could join as a rank: set "
            "PLAIT_SECRET to 32 hex digits or more, or give --secret=none",
            run->place.nnodes, why);
    strcpy(run->seats.launch.secret, PLAIT_NO_SECRET);
    return 0;
}

/* mpirun of Open MPI gives its processes a key, "16 digits-16 digits". */
static int read_mpi_key(char *secret)
{
    const char *key = getenv("OMPI_MCA_orte_precondition_transports");
    static const char digits[] = "0123456789abcdef";

    if (!key || strlen(key) != 33 || key[16] != '-' ||
        strspn(key, digits) != 16 || strspn(key + 17, digits) != 16)
        return -1;
    snprintf(secret, PLAIT_SECRET_SIZE, "%.16s%s", key, key + 17);
    return 0;
}

static int find_secret(struct run *run, const char **from,
                       struct plait_error *err)
{
    const char *given = getenv(PLAIT_ENV_SECRET);
    char *secret = run->seats.launch.secret;

    if (given && *given) {
        if (plait_launch_check_secret(given, err) < 0)
            return -1;
        snprintf(secret, PLAIT_SECRET_SIZE, "%s", given);
        *from = "as it was set";
    } else if (read_mpi_key(secret) == 0) {
        *from = "the key of Open MPI's mpirun";
    }
    return 0;
}

int run_secret(struct run *run, struct plait_error *err)
{
    const char *from = "neither munge nor Open MPI's mpirun gives one";

    if (run->place.alone)
        from = "made here";
    else if (find_secret(run, &from, err) < 0 ||
             run_secret_lacks(run, from, err) < 0)
        return -1;
    run_secret_show(run, from);
    return 0;
}
