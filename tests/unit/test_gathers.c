/* SPDX-License-Identifier: Apache-2.0 */
/* Where ZeRO 1 gathers new weights during the next step, they cannot be read
 * before they have arrived: two ranks make a step of the optimizer. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/comm/backend.h"
#include "runtime/comm/members.h"
#include "runtime/optim/optim.h"
#include "runtime/parallel/shard.h"
#include "socket_launch.h"
#include "tap.h"

enum { RANKS = 2 };

static const char job[] =
    "model: {family: gpt2, layers: 1, hidden: 16, heads: 2, vocab: 64,"
    " seq_len: 8}\n"
    "data: {train: none}\n"
    "train: {steps: 1, global_batch: 2, micro_batch: 1}\n"
    "parallel: {zero: 1, dp: 2}\n"
    "optim: {lr: 0.5}\n";

static struct plait_optim *open_optim(struct plait_comm *all, bool ahead,
                                      struct plait_mesh **mesh,
                                      struct plait_model **model)
{
    struct plait_error err = {""};
    struct plait_job_config *c =
        plait_job_config_parse("job", job, sizeof(job) - 1, NULL, 0, &err);
    struct plait_optim *optim = NULL;
    struct plait_layout layout;

    plait_layout_init(&layout);
    layout.size[PLAIT_DP] = RANKS;
    *mesh = c ? plait_mesh_create(plait_ops_cpu(),
                                  plait_ops_cpu()->device_create(0, 1), all,
                                  &layout, &err)
              : NULL;
    if (*mesh)
        (*mesh)->graphs.ahead = ahead;
    *model = *mesh ? plait_model_create(c, *mesh, &err) : NULL;
    optim = *model ? plait_optim_create(*model, &err) : NULL;
    if (optim && plait_optim_init(optim, 7, &err) == 0)
        return optim;
    fprintf(stderr, "%s\n", err.text);
    return NULL;
}

/* Reads a number of the first piece. */
static int read_one(struct plait_optim *optim, float *to)
{
    const struct plait_optim_piece *pieces;

    errno = 0;
    return plait_optim_pieces(optim, &pieces) > 0
               ? plait_optim_read_piece(optim, &pieces[0], 0, 1, to)
               : -1;
}

/* Returns 0 if the weights are under way after a step only with `ahead`. */
static int make_step(struct plait_comm *all, bool ahead)
{
    struct plait_mesh *mesh;
    struct plait_model *model;
    struct plait_optim *optim = open_optim(all, ahead, &mesh, &model);
    struct plait_shards *shards = optim ? plait_optim_shards(optim) : NULL;
    float before, after;
    bool refused;

    if (!optim || plait_shards_gathering(shards) ||
        read_one(optim, &before) < 0)
        return 1;
    for (size_t i = 0; i < shards->grads_bytes / sizeof(float); i++)
        shards->grads[i] = 1;
    if (plait_optim_step(optim, 0.5, 1, 1) < 0)
        return 2;
    if (plait_shards_gathering(shards) != ahead)
        return 3;
    refused = read_one(optim, &after) < 0 && errno == EINPROGRESS;
    if (refused != ahead)
        return 4;
    if (plait_optim_settle(optim) < 0 || plait_shards_gathering(shards))
        return 5;
    if (read_one(optim, &after) < 0 || after == before)
        return 6;
    plait_optim_destroy(optim);
    plait_model_destroy(model);
    plait_mesh_destroy(mesh);
    return 0;
}

static int run_rank(const struct plait_launch *launch, bool ahead)
{
    struct plait_error err = {""};
    struct plait_comm *star = plait_tcp_create(launch, 60, &err);
    struct plait_members *m =
        star ? plait_members_create(star, launch, &err) : NULL;
    struct plait_comm *all =
        m ? plait_members_world(m, plait_ops_cpu(), NULL, 60, &err) : NULL;
    int bad = all ? make_step(all, ahead) : 9;

    plait_comm_destroy(star);
    plait_comm_destroy(all);
    plait_members_destroy(m);
    return bad;
}

static int run_ranks(bool ahead)
{
    struct plait_launch launch = launch_of(0, RANKS);
    int bad = 0, status;

    fflush(stdout);
    for (launch.rank = 0; launch.rank < RANKS; launch.rank++)
        if (fork() == 0)
            _exit(run_rank(&launch, ahead));
    while (wait(&status) > 0)
        bad = status ? WEXITSTATUS(status) : bad;
    return bad;
}

int main(void)
{
    int bad = run_ranks(true);

    ok(!bad, "weights that are still gathered are refused, then read (%d)",
       bad);
    bad = run_ranks(false);
    ok(!bad, "with gathers in the step they are there (%d)", bad);
    return done_testing();
}
