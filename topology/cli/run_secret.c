/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "topology/base/files.h"
#include "topology/base/secret.h"
#include "topology/cli/credential.h"
#include "topology/cli/run.h"
#include "topology/start/meeting.h"
#include "topology/start/scontrol.h"

/* The secret of a step that somebody else has started. In Slurm RANK 0 makes
 * it and hands it over at MASTER_PORT; each task proves by a credential of
 * munge, which Slurm itself uses, that it is the same user's, and so does RANK
 * 0. All come before anybody goes on, so that no program of a task meets RANK 0
 * while it listens for them. */

/* Seconds without another task, for the answer, and for the others to hang
 * up. */
enum { QUIET = 60, ANSWER = 120, PART = 5 };

struct handing {
    struct run *run;
    struct credentials *credentials;
    int rank, world;
    char refused[128]; /* what RANK 0 had against somebody, "": nothing */
};

/* ---- what is written into a credential ---- */

static void print_request(const struct handing *h, int rank, char *text)
{
    snprintf(text, CREDENTIAL_TEXT, "plait task %.63s %d", h->run->place.jobid,
             rank);
}

int run_secret_parse(const char *text, const char *jobid, char *secret,
                     char *token)
{
    struct plait_error err;
    char id[64], found[PLAIT_SECRET_SIZE], other[RUN_TOKEN_SIZE];
    int end = 0;

    if (sscanf(text, "plait secret %63s %64s %32s%n", id, found, other, &end) !=
            3 ||
        !end || text[end] || strcmp(id, jobid) != 0 ||
        plait_launch_check_secret(found, &err) < 0 || strlen(other) != 32 ||
        strspn(other, "0123456789abcdef") != 32)
        return -1;
    strcpy(secret, found);
    strcpy(token, other);
    return 0;
}

/* ---- RANK 0 ---- */

/* Is it a task of this step, and that one? */
static int check_request(void *arg, int index, const char *text)
{
    struct handing *h = arg;
    char found[CREDENTIAL_TEXT], wanted[CREDENTIAL_TEXT];
    struct plait_error err;

    print_request(h, index + 1, wanted);
    if (credentials_open(h->credentials, text, 0, found, &err) == 0) {
        if (strcmp(found, wanted) == 0)
            return 1;
        plait_errorf(&err, "a task of another step");
    }
    snprintf(h->refused, sizeof(h->refused), "%.120s", err.text);
    return 0;
}

static int make_answer(struct handing *h, char answer[CREDENTIAL_SIZE],
                       struct plait_error *err)
{
    struct run *run = h->run;
    char *secret = run->seats.launch.secret, text[CREDENTIAL_TEXT];

    if (plait_secret_create(secret, PLAIT_SECRET_SIZE) < 0 ||
        plait_secret_create(run->token, sizeof(run->token)) < 0)
        return plait_errorf(err, "no random numbers: %s", strerror(errno));
    snprintf(text, sizeof(text), "plait secret %.63s %s %s", run->place.jobid,
             secret, run->token);
    return credentials_seal(h->credentials, text, answer, err);
}

static int say_missing(const struct handing *h,
                       const struct plait_meeting *meeting,
                       struct plait_error *err)
{
    int rank = 1;

    while (plait_meeting_said(meeting, rank - 1))
        rank++;
    return plait_errorf(err,
                        "run: rank %d has not asked for the secret of this "
                        "step in %d s%s%s",
                        rank, QUIET, *h->refused ? "; refused: " : "",
                        h->refused);
}

static int hand_out(struct handing *h, struct plait_error *err)
{
    const struct plait_launch *launch = &h->run->seats.launch;
    uint16_t port = (uint16_t)launch->master_port, ports[2] = {port, port};
    char answer[CREDENTIAL_SIZE];
    struct plait_meeting *meeting;
    struct rlimit files;
    int known = getrlimit(RLIMIT_NOFILE, &files) == 0, rc;

    if (make_answer(h, answer, err) < 0)
        return -1;
    if (h->world == 1)
        return 0;
    plait_files_allow((size_t)h->world);
    meeting =
        plait_meeting_create(h->world - 1, h->run->place.jobid, ports, err);
    rc = meeting ? 0 : -1;
    if (meeting) {
        plait_meeting_check(meeting, check_request, h);
        if (plait_meeting_wait(meeting, QUIET) != 1)
            rc = say_missing(h, meeting, err);
        plait_meeting_close(meeting);
    }
    if (rc == 0) {
        plait_meeting_answer(meeting, answer);
        plait_meeting_part(meeting, PART);
    }
    plait_meeting_destroy(meeting);
    if (known)
        setrlimit(RLIMIT_NOFILE, &files);
    return rc;
}

/* ---- the others ---- */

static int ask(struct handing *h, struct plait_error *err)
{
    struct plait_launch *launch = &h->run->seats.launch;
    struct plait_meeting_place place = {.port = launch->master_port,
                                        .patience = QUIET};
    char text[CREDENTIAL_TEXT], request[CREDENTIAL_SIZE], *answer;
    struct plait_error why;
    int rc = -1;

    print_request(h, h->rank, text);
    if (credentials_seal(h->credentials, text, request, err) < 0)
        return -1;
    answer = malloc(PLAIT_MEETING_ANSWER);
    if (!answer)
        return plait_errorf(err, "out of memory");
    snprintf(place.host, sizeof(place.host), "%s", launch->master_addr);
    snprintf(place.token, sizeof(place.token), "%s", h->run->place.jobid);
    if (plait_meeting_join(&place, h->rank - 1, request, ANSWER, answer, &why) <
        0) {
        /* RANK 0 has said why; that it cannot be reached, one says. */
        h->run->said = errno == ECONNRESET || h->rank != 1;
        plait_errorf(err, "run: no secret from RANK 0: %s", why.text);
    } else if (credentials_open(h->credentials, answer, 1, text, &why) < 0) {
        plait_errorf(err, "run: no secret from RANK 0: %s", why.text);
    } else if (run_secret_parse(text, h->run->place.jobid, launch->secret,
                                h->run->token) < 0) {
        plait_errorf(err, "run: no secret from RANK 0: it has told one of "
                          "another step");
    } else {
        rc = 0;
    }
    free(answer);
    return rc;
}

/* ---- where else it may come from ---- */

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

/* 1: there is one, 0: it is to be handed over, -1: there is none. `from` says
 * where from, or why not. */
static int find_secret(struct run *run, char *socket, char *from, size_t size,
                       struct plait_error *err)
{
    const char *given = getenv(PLAIT_ENV_SECRET);
    char *secret = run->seats.launch.secret;
    int munge;

    if (given && *given) {
        if (plait_launch_check_secret(given, err) < 0)
            return -2;
        snprintf(secret, PLAIT_SECRET_SIZE, "%s", given);
        snprintf(from, size, "as it was set");
        return 1;
    }
    snprintf(from, size, "neither munge nor Open MPI's mpirun gives one");
    if (!run->place.slurm) {
        if (read_mpi_key(secret) < 0)
            return -1;
        snprintf(from, size, "the key of Open MPI's mpirun");
        return 1;
    }
    if (!run->options.rendezvous) {
        snprintf(from, size, "--rendezvous=none");
        return -1;
    }
    if (run->seats.launch.world_size == 1 && !run->options.preflight) {
        snprintf(from, size, "made here");
        return plait_secret_create(secret, PLAIT_SECRET_SIZE) < 0 ? -2 : 1;
    }
    munge = plait_scontrol_munge(socket, size, err);
    if (munge < 0)
        return -2;
    if (munge)
        snprintf(from, size, "handed over by munge");
    else
        snprintf(from, size, "Slurm uses %.40s, not munge", socket);
    return munge ? 0 : -1;
}

static int hand_over(struct run *run, const char *socket,
                     struct plait_error *err)
{
    struct handing h = {.run = run,
                        .rank = run->seats.first_rank + run->place.local,
                        .world = run->seats.launch.world_size};
    int rc;

    h.credentials = credentials_create(socket, err);
    if (!h.credentials)
        return -1;
    rc = h.rank == 0 ? hand_out(&h, err) : ask(&h, err);
    credentials_destroy(h.credentials);
    run->only_here |= rc < 0;
    return rc;
}

int run_secret(struct run *run, struct plait_error *err)
{
    char socket[256] = "", from[256] = "made here";
    int found = 1;

    if (!run->place.alone)
        found = find_secret(run, socket, from, sizeof(from), err);
    if (found == -2)
        return -1;
    if (run->options.show_plan && run->place.rank == 0)
        fprintf(stderr, "  %s: %s\n", found < 0 ? "no secret" : "secret", from);
    if (found == 0)
        return hand_over(run, socket, err);
    errno = EINVAL;
    return run->options.preflight && !*run->token
               ? plait_errorf(err,
                              "run: --preflight goes with --np, or with tasks "
                              "that know each other by munge (secret: %.100s)",
                              from)
               : 0;
}
