/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_SESSION_H
#define PLAIT_RUNTIME_TRAIN_SESSION_H

#include <stdbool.h>

#include "runtime/comm/world.h"
#include "runtime/mesh/links.h"
#include "runtime/mesh/mesh.h"
#include "runtime/train/watchdog/watchdog.h"
#include "topology/job/job_config.h"

/* The command line of plait-train; the programs that take a model from a
 * directory have `model`, `set` and `device` alone. */
struct plait_train_args {
    char **argv; /* as it was given */
    const char *config;
    const char *model; /* in place of config: a Hugging Face directory or a
                          checkpoint, whose model is run */
    const char **set;  /* [nset] "section.key=value" */
    int nset;
    const char *metrics; /* in place of log.metrics, NULL: as configured */
    const char *resume;  /* "auto", "none" or a directory */
    const char *anyway;  /* settings that may differ, NULL: none */
    const char *init;    /* where weights come from at first, NULL: random */
    const char *device;  /* "auto", "cuda", "cpu" */
    const char *comm;    /* "auto", "mpi", "socket"; NULL: auto */
    int64_t sample;      /* tokens to generate instead of training, 0: train */
    const char *prompt;  /* NULL: none */
    const char *tokenizer; /* of the sample, NULL: as the vocabulary says */
    bool profile_summary;
    char **words; /* [nwords] where all ranks must have the same command line:
                     its arguments */
    int nwords;
};

/* Everything that is set up before the model: who the ranks are, what they
 * compute on, and what they were asked to do. */
struct plait_session {
    double opened; /* Unix time */
    struct plait_world world;
    struct plait_hang *hang;
    struct plait_watchdog *dog;      /* NULL: one process */
    char *config_text;               /* as read, NUL-terminated */
    struct plait_job_config *config; /* parallel sizes resolved */
    char *init;     /* where the weights of a new run come from; NULL: they
                       are new */
    int data_vocab; /* tokens that the data says it has; 0: not known */
    /* Of rank 0: why data.train cannot be opened, where that was not fatal. */
    struct plait_error data_unread;
    struct plait_mesh *mesh;
    struct plait_mesh_links links; /* what is said of them at the start */
    struct plait_claims *claims;   /* of rank 0; NULL: none yet */
    struct plait_elastic *elastic; /* NULL: the run ends when a rank does */
    bool training; /* steps are made: another start goes on from a checkpoint */
};

/* Collective over all processes of the run. On failure at most one rank has
 * text in err. Whatever was made stays in the session for
 * plait_session_close(). */
int plait_session_open(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err);
void plait_session_close(struct plait_session *s);
/* The part of plait_session_open() that follows once the world is open. With
 * s->elastic, the configuration is the one that was read at the first start. */
int plait_session_complete(struct plait_session *s,
                           const struct plait_train_args *args,
                           struct plait_error *err);
/* The metrics file of the run; NULL: none. */
const char *plait_session_metrics(const struct plait_session *s,
                                  const struct plait_train_args *args);

#endif
