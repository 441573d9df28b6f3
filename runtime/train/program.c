/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/train/program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/train/anew.h"
#include "runtime/train/elastic.h"
#include "runtime/train/run.h"

#define ABORT_S 5 /* seconds that the abort may take */

struct watched {
    const char *name;
    const struct plait_train_args *args;
    struct plait_session session;
};

static void report_error(const char *name, const struct plait_error *err)
{
    if (err->text[0])
        fprintf(stderr, "%s: %s\n", name, err->text);
}

/* Whether transfers have failed on this rank, perhaps on this one alone. */
static bool failed(const struct plait_session *s)
{
    return s->world.comm && plait_comm_failed(s->world.comm) &&
           !plait_comm_lost(s->world.comm) &&
           !plait_comm_difference(s->world.comm);
}

/* Report what ended the run. Where all ranks have lost a peer, or were in
 * different collectives, only the lowest rank that is left reports it, and
 * names the process that is gone if it can. */
static void report_end(const struct watched *w, int rc,
                       const struct plait_error *err)
{
    const struct plait_session *s = &w->session;
    const char *differ =
        s->world.comm ? plait_comm_difference(s->world.comm) : NULL;
    bool lost = s->world.comm && (differ || plait_comm_lost(s->world.comm));
    char gone[120];

    if (lost && !plait_hang_tells(s->hang))
        return;
    if (differ)
        fprintf(stderr, "%s: %s: ended", w->name, differ);
    else if (lost && plait_hang_gone(s->hang, gone, sizeof(gone)))
        fprintf(stderr, "%s: %s has ended unexpectedly; this rank stops",
                w->name, gone);
    else if (err->text[0])
        fprintf(stderr, "%s: %s", w->name, err->text);
    else
        return;
    plait_run_say_again(s, w->args);
    fputc('\n', stderr);
    if (err->text[0] && (lost || rc == PLAIT_RUN_BROKEN || failed(s)))
        plait_hang_tell(s->hang);
    else if (err->text[0] && rc < 0)
        plait_hang_tell_here(s->hang);
}

/* Without heartbeats a run works as well, until it hangs. */
static void report_unheard(const char *name, const struct plait_session *s)
{
    const char *why = plait_hang_unheard(s->hang);

    if (why && plait_comm_rank(s->world.comm) == 0)
        fprintf(stderr,
                "%s: the nodes exchange no heartbeats, so a report of a hang "
                "covers one node only: %s\n",
                name, why);
}

/* Another process of this node is gone, perhaps killed, and the launcher has
 * not ended the rest. They cannot go on. */
static void on_peer_gone(void *arg, const char *what)
{
    struct watched *w = arg;
    bool told = plait_hang_told(w->session.hang);

    if (!told)
        fprintf(stderr, "%s: %s: stopped", w->name, what);
    /* The file system may not answer, and the main thread may be using what is
     * aborted. */
    alarm(ABORT_S);
    if (!told) {
        plait_run_say_again(&w->session, w->args);
        fputc('\n', stderr);
    }
    plait_comm_kill_node(w->session.world.comm);
    plait_comm_abort(w->session.world.comm);
    _exit(1);
}

/* An elastic run is not watched: it notices by failed transfers that a rank is
 * gone. */
static int open_session(struct watched *w, const struct plait_program *p,
                        struct plait_elastic *elastic, struct plait_error *err)
{
    struct plait_session *s = &w->session;
    int rc, fd = p->elastic ? plait_anew_file() : -1;

    if (fd >= 0)
        return plait_elastic_resume(s, elastic, fd, err);
    rc = plait_session_open(s, p->args, err);
    if (p->elastic)
        rc = plait_elastic_begin(s, rc, elastic, err);
    if (rc < 0)
        return -1;
    if (s->elastic)
        return 0;
    return plait_comm_watch(s->world.comm, on_peer_gone, w, err);
}

/* Run the program, and again after each loss. rc: the result of opening the
 * session. */
static int run_elastic(struct plait_session *s, const struct plait_program *p,
                       int rc, struct plait_error *err)
{
    struct plait_train_args args = *p->args;
    struct plait_program again = *p;
    int outcome = 0;

    again.args = &args;
    if (rc == 0)
        rc = s->world.comm ? p->run(s, p, err)
                           : plait_elastic_wait(s, &outcome, err);
    while (rc < 0 && plait_elastic_lost(s)) {
        rc = plait_elastic_again(s, &args, &outcome, err);
        if (rc == 0)
            rc = p->run(s, &again, err);
    }
    if (rc != PLAIT_RUN_BROKEN && rc != 1)
        plait_elastic_end(s, rc);
    return rc == 1 ? outcome : rc;
}

/* Collective. The exit status. */
static int run_program(const struct plait_program *program)
{
    struct plait_error err = {""};
    struct watched w = {.name = program->name, .args = program->args};
    struct plait_session *s = &w.session;
    struct plait_elastic elastic = {.config_text = NULL};
    int rc = open_session(&w, program, &elastic, &err);

    if (rc == 0 && s->world.comm)
        report_unheard(program->name, s);
    rc = run_elastic(s, program, rc, &err);
    report_end(&w, rc, &err);
    if (rc == PLAIT_RUN_BROKEN || (rc < 0 && failed(s))) {
        /* The others may wait for this rank for ever: end them too. But where
         * all have learnt of the failure together, they come here, and one of
         * them has said it first. */
        if (plait_comm_agreed(s->world.all))
            plait_comm_barrier(s->world.all);
        plait_comm_abort(s->world.all);
        exit(1);
    }
    /* Launchers kill all ranks as soon as one has failed: none may end before
     * the message is out. Where this rank alone has failed, the others never
     * come here, and the watch ends them. */
    if (rc < 0 && s->world.comm)
        plait_comm_barrier(s->world.comm);
    plait_session_close(s);
    plait_elastic_clear(&elastic);
    return rc == 0 ? 0 : 1;
}

/* Only an elastic program can give spare processes a seat. */
static int check_spares(const struct plait_program *program,
                        struct plait_error *err)
{
    if (program->elastic || plait_world_spares() == 0)
        return 0;
    return plait_errorf(err, "plait run --spares: only plait-train can use "
                             "spare processes");
}

static int refuse_usage(const char *name, const struct plait_error *err)
{
    if (plait_rank_hint() == 0)
        report_error(name, err);
    return 2;
}

static int refuse_to_meet(const char *name, const struct plait_error *err)
{
    fprintf(stderr, "%s: rank %d: %s\n", name, plait_rank_hint(), err->text);
    return 1;
}

int plait_program_main(const struct plait_program *program, int parsed,
                       const struct plait_error *err)
{
    struct plait_error why = *err;
    int status;

    if (parsed == 0)
        parsed = check_spares(program, &why);
    if (parsed == PLAIT_RUN_BROKEN)
        status = refuse_to_meet(program->name, &why);
    else if (parsed < 0)
        status = refuse_usage(program->name, &why);
    else
        status = parsed == 0 ? run_program(program) : 0;

    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    fprintf(stderr, "%s: cannot write to standard output: %s\n", program->name,
            strerror(errno));
    return 1;
}
