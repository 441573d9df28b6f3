/* SPDX-License-Identifier: Apache-2.0 */
/* Claims what a run writes to: checkpoint.dir and the metrics file. */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/claims.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/comm/consensus.h"
#include "runtime/train/claim.h"
#include "runtime/train/elastic.h"
#include "runtime/train/watchdog/hang.h"

struct plait_claims {
    struct plait_claim *of[2]; /* NULL: none */
};

/* While rank 0 waits, train.phase_timeout must not end the run. */
static void note_wait(void *arg, const char *line)
{
    if (line)
        fprintf(stderr, "plait-train: %s\n", line);
    plait_hang_moved(arg);
}

/* Takes ownership of `path`. */
static int claim(struct plait_claims *claims, int i, char *path,
                 const char *what, struct plait_claimer *me,
                 struct plait_error *err)
{
    char said[PLAIT_CLAIM_SAID];

    if (!path)
        return plait_errorf(err, "out of memory");
    claims->of[i] = plait_claim_take(path, what, me, said, err);
    free(path);
    if (!claims->of[i] && err->text[0])
        return -1;
    if (*said)
        fprintf(stderr, "plait-train: %s\n", said);
    return 0;
}

/* A folder that cannot be made has nothing to claim; saving will say why. */
static int claim_folder(struct plait_claims *claims, const char *dir,
                        struct plait_claimer *me, struct plait_error *err)
{
    struct plait_error why;
    char *path;

    if (!dir || plait_directory_make(dir, &why) < 0)
        return 0;
    if (asprintf(&path, "%s/.running", dir) < 0)
        path = NULL;
    return claim(claims, 0, path, dir, me, err);
}

/* Two names of one file are one file. Pipes and terminals are nobody's. */
static int claim_metrics(struct plait_claims *claims, const char *metrics,
                         struct plait_claimer *me, struct plait_error *err)
{
    char *whole, *path;
    struct stat st;

    if (!metrics || (stat(metrics, &st) == 0 && !S_ISREG(st.st_mode)))
        return 0;
    whole = realpath(metrics, NULL);
    if (asprintf(&path, "%s.running", whole ? whole : metrics) < 0)
        path = NULL;
    free(whole);
    return claim(claims, 1, path, metrics, me, err);
}

static int claim_both(struct plait_session *s,
                      const struct plait_train_args *args,
                      struct plait_error *err)
{
    struct plait_claimer me;

    s->claims = calloc(1, sizeof(*s->claims));
    if (!s->claims)
        return plait_errorf(err, "out of memory");
    plait_claim_self(&me);
    me.waits = note_wait;
    me.arg = s->hang;
    if (s->elastic)
        me.run = s->elastic->run;
    else if (getrandom(&me.run, sizeof(me.run), 0) != sizeof(me.run))
        return plait_errorf(err, "getrandom: %s", strerror(errno));
    if (claim_folder(s->claims, s->config->checkpoint.dir, &me, err) < 0)
        return -1;
    return claim_metrics(s->claims, plait_session_metrics(s, args), &me, err);
}

void plait_claims_go_on(struct plait_elastic *e)
{
    struct plait_claimer me;

    plait_claim_self(&me);
    me.run = e->run;
    for (int i = 0; i < e->nheld; i++)
        e->beats[i] = plait_claim_go_on(e->held[i], &me);
}

/* The claims of this life wait for the locks of the one before. */
static void let_go(struct plait_elastic *e)
{
    while (e->nheld > 0) {
        int i = --e->nheld;

        if (e->beats[i])
            plait_claim_drop(e->beats[i]);
        else
            close(e->held[i]);
    }
}

int plait_claims_take(struct plait_session *s,
                      const struct plait_train_args *args,
                      struct plait_error *err)
{
    int rc = 0;

    if (plait_comm_rank(s->world.comm) == 0 && !s->claims)
        rc = claim_both(s, args, err);
    /* The watchdog must not take the records for progress of the run. */
    for (int i = 0; s->claims && i < 2; i++)
        plait_hang_except(s->hang, i, plait_claim_thread(s->claims->of[i]));
    if (s->elastic)
        let_go(s->elastic);
    return plait_error_consensus(s->world.comm, rc, err);
}

/* Before this life has claims, e->held are still those of the one before. */
void plait_claims_hold(const struct plait_claims *claims,
                       struct plait_elastic *e)
{
    for (int i = 0; i < e->nheld; i++)
        if (e->beats[i])
            plait_claim_hold(e->beats[i]);
    for (int i = 0; claims && i < 2; i++)
        if (claims->of[i])
            e->held[e->nheld++] = plait_claim_hold(claims->of[i]);
}

void plait_claims_unhold(const struct plait_claims *claims,
                         struct plait_elastic *e)
{
    for (int i = 0; claims && i < 2; i++)
        if (claims->of[i]) {
            plait_claim_unhold(claims->of[i]);
            e->nheld--;
        }
    for (int i = 0; i < e->nheld; i++)
        if (e->beats[i])
            plait_claim_unhold(e->beats[i]);
}

void plait_claims_release(struct plait_claims *claims)
{
    int saved = errno;

    if (!claims)
        return;
    for (int i = 0; i < 2; i++)
        plait_claim_release(claims->of[i]);
    free(claims);
    errno = saved;
}
