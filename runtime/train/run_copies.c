/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.memory: copies of the state in peers' memory.
 *
 * The copies belong to the session's struct plait_elastic and not to the run:
 * they must outlive a run that ends by the loss of a rank, as the next one
 * starts from them (plait_run_load_copies). The run owns the copier, which
 * fills them between steps. Each rank's copy goes to a partner on another node
 * where there is one (checkpoint/copier.h). All ranks copy after the same
 * steps, and a copy is whole only when all partners have theirs, which the next
 * call makes sure of. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "runtime/comm/consensus.h"
#include "runtime/train/elastic.h"
#include "runtime/train/run_private.h"

static int copy_now(struct run *r, struct plait_error *err)
{
    static const struct plait_doing doing = {
        .phase = PLAIT_PHASE_SAVE, .track = "checkpoint", .name = "copy"};
    struct plait_activity a =
        plait_activity_begin(&r->s->mesh->listeners, &doing);
    int rc;

    plait_run_describe(r);
    rc = plait_copier_copy(r->copies.copier, &r->done, err);
    r->copies.seconds += plait_activity_end(&a);
    return rc < 0 ? PLAIT_RUN_BROKEN : 0;
}

int plait_run_copies_create(struct run *r, struct plait_error *err)
{
    struct plait_elastic *e = r->s->elastic;
    int rc = 0;

    if (r->config->checkpoint.memory == 0)
        return 0;
    if (!e) {
        errno = EINVAL;
        rc = plait_errorf(err, "checkpoint.memory: copies are for ranks that "
                               "go on when others die: start with plait run "
                               "--elastic and several ranks, or leave it out");
        return plait_error_consensus(r->world, rc, err);
    }
    r->copies.copier = plait_copier_create(
        e->copies, plait_trainer_model(r->trainer),
        plait_trainer_optim(r->trainer), r->s->world.members->epoch, err);
    return r->copies.copier ? copy_now(r, err) : -1;
}

void plait_run_copies_destroy(struct run *r)
{
    plait_copier_destroy(r->copies.copier);
}

/* A copy is finished a step after it began: by then the partner has received
 * it. */
int plait_run_copy(struct run *r, struct plait_error *err)
{
    static const struct plait_doing finishing = {.track = "checkpoint",
                                                 .name = "copy"};
    int64_t every = r->config->checkpoint.memory;
    struct plait_activity a;
    int rc;

    if (!r->copies.copier)
        return 0;
    if (r->done.step % every == 0)
        return copy_now(r, err);
    a = plait_activity_begin(&r->s->mesh->listeners, &finishing);
    rc = plait_copier_finish(r->copies.copier, err);
    r->copies.seconds += plait_activity_end(&a);
    return rc < 0 ? PLAIT_RUN_BROKEN : 0;
}

void plait_run_report_copies(const struct run *r)
{
    double steps = plait_run_account_seconds(r);

    if (!r->copies.copier || plait_comm_rank(r->world) != 0)
        return;
    printf("copies in memory: %d, in %.1f MiB of each rank's, %.2f %% of the "
           "time of the steps\n",
           plait_copier_count(r->copies.copier),
           (double)plait_copier_bytes(r->copies.copier) / (1 << 20),
           100 * r->copies.seconds / (steps > 0 ? steps : 1));
}

int plait_run_load_copies(struct run *r, struct plait_error *err)
{
    const struct plait_elastic *e = r->s->elastic;

    if (!e || !e->copies || e->losses == 0 || e->copies->step < 0)
        return 1;
    if (plait_checkpoint_load_copies(e->copies, &r->done,
                                     plait_trainer_optim(r->trainer), err) == 0)
        return 0;
    if (errno != EBADMSG)
        return -1;
    if (err->text[0])
        fprintf(stderr,
                "plait-train: copies in memory of step %" PRId64
                " skipped: %s\n",
                e->copies->step, err->text);
    err->text[0] = '\0';
    return 1;
}
