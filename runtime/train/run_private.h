/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_RUN_PRIVATE_H
#define PLAIT_RUNTIME_TRAIN_RUN_PRIVATE_H

#include <stdbool.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/copier.h"
#include "runtime/checkpoint/replica_check.h"
#include "runtime/model/took.h"
#include "runtime/trace/activity.h"
#include "runtime/train/log.h"
#include "runtime/train/metrics/divergence.h"
#include "runtime/train/metrics/goodput.h"
#include "runtime/train/metrics/metrics.h"
#include "runtime/train/metrics/progress.h"
#include "runtime/train/report.h"
#include "runtime/train/run.h"
#include "runtime/train/step.h"
#include "runtime/train/watchdog/straggler.h"
#include "runtime/train/watchdog/watchdog.h"
#include "topology/node/energy.h"
#include "topology/predict/estimate.h"

/* A run is made of parts. Each belongs to one of the files run_*.c, which alone
 * looks into it; the others call the functions below. */

/* run_state.c */
struct run_state {
    int64_t trial; /* step of the checkpoint that --resume auto chose, until the
                      first step from it was finite; -1: none */
    bool resumed;  /* from a checkpoint */
};

/* run_save.c */
struct run_saving {
    struct plait_saver *saver;         /* NULL: no checkpoints */
    struct plait_replica_check *check; /* NULL: train.check_replicas 0 */
    struct plait_data_identity data;   /* the data it is trained on */
    /* checkpoint.every auto: the step to save after, and how often. */
    int64_t next, every;
};

/* run_copies.c */
struct run_copies {
    struct plait_copier *copier; /* NULL: no copies in memory */
    double seconds;              /* that they took */
};

/* run_output.c */
struct run_output {
    struct plait_log *log;          /* rank 0, NULL: none */
    struct plait_progress progress; /* rank 0 */
    struct plait_trace *trace;      /* NULL: log.profile not set */
    struct plait_profile *profile;  /* rank 0, NULL: not asked for */
    struct plait_report report;
    struct plait_divergence divergence;
    bool unlogged; /* metrics could not be written: see `why` */
    bool unread;   /* validation data could not be read, likewise */
    struct plait_error why;
};

/* run_measure.c */
struct run_measure {
    struct plait_comm_stats control;            /* over the world, so far */
    struct plait_comm_stats sent[PLAIT_NCOMMS]; /* so far */
    double *stage_bytes; /* [pp] that the fullest rank of each stage holds */
    double *nodes;       /* [ranks] equal where ranks share a node */
    double busy_s;       /* computing time since ranks were last compared */
    int busy_steps;      /* the steps of busy_s */
    bool compared;       /* ranks were compared at least once */
    struct plait_rank_times rank_times; /* as last compared */
    struct plait_straggler straggler;
};

/* run_shares.c: where the time of the steps after the first went, on this
 * rank. */
struct run_shares {
    int64_t steps;
    double sum[PLAIT_NSHARES];
    double part[PLAIT_MODEL_PARTS]; /* the model's times, before the step */
    struct plait_shares shares;
};

/* run_account.c: what this start of the run has done, for its job's comment. */
struct run_account {
    int64_t first_tokens, steps;
    double seconds, tokens; /* of its steps after the first */
    double loss;
    double val_loss;             /* of the last evaluation; NAN: none */
    struct plait_energy *energy; /* NULL: not measured by this rank */
    double joules;
};

/* One run from its first step to its last. */
struct run {
    struct plait_session *s;
    const struct plait_train_args *args;
    const struct plait_job_config *config;
    struct plait_comm *world;
    struct plait_trainer *trainer;
    struct plait_checkpoint_info done;    /* steps and tokens so far */
    int64_t saved;                        /* step of the newest checkpoint */
    struct plait_watchdog *dog;           /* the session's; NULL: none */
    double peak;                          /* FLOP/s of all ranks */
    char peak_key[300];                   /* "": it is not kept */
    struct plait_goodput_account goodput; /* of rank 0 */
    bool searches; /* search for products' algorithms after the next step */
    struct run_state state;
    struct run_saving saving;
    struct run_copies copies;
    struct run_output output;
    struct run_measure measure;
    struct run_shares shares;
    struct run_account account;
};

/* -- run_state.c: where it goes on from ----------------------------------- */

void plait_run_state_create(struct run *r);
/* Weights from the checkpoint that --resume names, or fresh ones. */
int plait_run_start_weights(struct run *r, struct plait_error *err);
/* The model or checkpoint whose files (tokenizer, config.json) belong beside
 * the checkpoints; NULL: none. */
const char *plait_run_origin(const struct run *r);
/* Open the data at the position that the state gives. */
int plait_run_open_data(struct run *r, struct plait_error *err);
/* After the first step from a checkpoint that --resume auto chose: whether its
 * result is finite. PLAIT_RUN_BACK: it is not, and the run has gone back to the
 * checkpoint before. */
int plait_run_try(struct run *r, const struct plait_step_result *result,
                  struct plait_error *err);

/* -- run_learners.c -------------------------------------------------------- */

/* Replaces sync.learners auto by a number, that of the checkpoint that the run
 * goes on from or the best of some trials, and multiplies train.global_batch by
 * it. PLAIT_RUN_BROKEN as for a step. */
int plait_run_choose_learners(struct run *r, struct plait_error *err);

/* -- run_products.c -------------------------------------------------------- */

/* Before the first step: load the algorithms that earlier runs have found. */
int plait_run_load_products(struct run *r, struct plait_error *err);
/* After the first step: search for algorithms of its products that no run has
 * timed yet. Both are collective, and do nothing where no search is wanted. */
int plait_run_search_products(struct run *r, struct plait_error *err);

/* -- run_save.c: checkpoints ---------------------------------------------- */

/* Whether this rank's GPU has failed, which err says unless it has a text. */
bool plait_run_gpu_failed(const struct run *r, struct plait_error *err);
int plait_run_saving_create(struct run *r, struct plait_error *err);
/* The data that it is trained on, for checkpoints. */
void plait_run_saving_data(struct run *r,
                           const struct plait_data_identity *data);
void plait_run_saving_destroy(struct run *r);
/* The state of the run between two steps, in r->done. */
void plait_run_describe(struct run *r);
/* Check that ranks which hold the same values agree on them, if a check is due:
 * every train.check_replicas steps, and before each save. */
int plait_run_check_replicas(struct run *r, bool saves,
                             struct plait_error *err);
/* Whether a checkpoint is due once so many steps are made. */
bool plait_run_save_due(const struct run *r, int64_t step);
/* With checkpoint.every auto: plan the next checkpoint. first: its cost is not
 * known yet. Collective. */
int plait_run_plan_save(struct run *r, bool first, struct plait_error *err);
/* Save between two steps. In background saves, training only waits for the copy
 * of the state. A failed write is reported, and is no error; PLAIT_RUN_BROKEN
 * if this rank's GPU has failed, as also from the next two functions. */
int plait_run_save(struct run *r, struct plait_error *err);
/* Put a checkpoint in place if its writing in the background has ended. */
int plait_run_poll_saver(struct run *r, struct plait_error *err);
/* Save after the last step. */
int plait_run_save_last(struct run *r, struct plait_error *err);
/* Whether the state is finite; -1 with errno EDOM if not. Collective. */
int plait_run_check_state(struct run *r, struct plait_error *err);
/* After a failure of the run: finish the checkpoint whose state was copied
 * before. */
void plait_run_finish_save(struct run *r);
/* Steps between two checkpoints, 0: none. */
double plait_run_save_every(const struct run *r);
/* Print a hash by which two deterministic runs can be compared. */
int plait_run_say_state(struct run *r, struct plait_error *err);

/* -- run_copies.c: checkpoint.memory --------------------------------------- */

/* Opens checkpoint.memory and makes a first copy, so that ranks can be lost
 * from now on. */
int plait_run_copies_create(struct run *r, struct plait_error *err);
void plait_run_copies_destroy(struct run *r);
/* After a step: begin a copy if one is due, else finish the one that was
 * begun. */
int plait_run_copy(struct run *r, struct plait_error *err);
/* After the last step: print what the copies cost. */
void plait_run_report_copies(const struct run *r);
/* After a loss: load the state from the copies that are left; 1: there are
 * none. */
int plait_run_load_copies(struct run *r, struct plait_error *err);

/* -- run_output.c: log, trace and terminal --------------------------------- */

int plait_run_output_create(struct run *r, struct plait_error *err);
/* The log of a run that goes on from r->done. */
int plait_run_open_log(struct run *r, struct plait_error *err);
/* Reports a step. A run whose metrics cannot be written ends as on a signal,
 * with a checkpoint: what was trained is not lost. */
void plait_run_output_step(struct run *r, const struct plait_metrics *m);
/* Notes that validation data could not be read, as err says. Such a run ends in
 * the same way. */
void plait_run_output_unread(struct run *r, struct plait_error *err);
/* Whether the run is to end because metrics could not be written. */
bool plait_run_output_unlogged(const struct run *r);
/* What a step has changed about how the next are made, if anything. */
void plait_run_output_changes(struct run *r);
/* Leaves the live line. */
void plait_run_output_stop(struct run *r);
/* After the last step: -1 with err where one of these two ended the run. */
int plait_run_output_failed(const struct run *r, struct plait_error *err);
/* Ends the trace's file. */
int plait_run_output_end(struct run *r, struct plait_error *err);
void plait_run_output_destroy(struct run *r);

/* -- run_measure.c --------------------------------------------------------- */

/* Which ranks share a node. Collective. */
int plait_run_measure_create(struct run *r, struct plait_error *err);
void plait_run_measure_destroy(struct run *r);
/* [ranks] equal where ranks share a node */
const double *plait_run_measure_nodes(const struct run *r);
/* What ranks have waited for each other since the last step counts for no
 * step. */
void plait_run_measure_skip(struct run *r);
/* Traffic and waits of each group since the last call. */
void plait_run_measure_comm(struct run *r, struct plait_metrics *m);
/* Memory of each stage; after the first step, when a run holds all that it ever
 * will. After the others it does nothing. */
int plait_run_measure_stages(struct run *r, struct plait_error *err);
/* Call it after each step; every few steps it finds out which rank computes
 * longest. */
int plait_run_measure_slowest(struct run *r, struct plait_metrics *m,
                              struct plait_error *err);
/* save_every: steps between two checkpoints, 0: none. */
void plait_run_measure_step(struct run *r,
                            const struct plait_step_result *result,
                            double seconds, double save_every,
                            struct plait_metrics *m);

/* -- run_shares.c: plan against actual ------------------------------------ */

/* The cost model's estimate of a step on this rank's device, as `plait
 * estimate` gives it: from the site's figures, or for the site's own GPU type
 * where no table has the device. */
int plait_run_estimate(const struct run *r, struct plait_estimate *e);

void plait_run_shares_begin(struct run *r);
/* After a step that was measured. */
void plait_run_shares_step(struct run *r, const struct plait_metrics *m);
/* After the last step, collective: sets m->shares, which stays NULL if there
 * were too few steps or the cost model cannot plan such a run. */
int plait_run_shares_end(struct run *r, struct plait_metrics *m,
                         struct plait_error *err);

/* -- run_account.c --------------------------------------------------------- */

void plait_run_account_create(struct run *r);
/* Call it before the log cuts off the lines of steps that are made again. */
void plait_run_read_past(struct run *r);
void plait_run_account_step(struct run *r, const struct plait_metrics *m);
/* After the last step: the line in the job's comment. Collective. */
void plait_run_account_end(struct run *r);
void plait_run_account_destroy(struct run *r);
/* Seconds of the steps after the first. */
double plait_run_account_seconds(const struct run *r);

/* -- run_end.c: what is said at the end ------------------------------------ */

/* Rank 0 says where the run has ended, what it has kept and what can be done
 * next. stopped: before its last step. */
void plait_run_say_end(const struct run *r, bool stopped);
/* Rank 0 says that the loss has risen for good, and what may help. */
void plait_run_say_divergence(const struct run *r,
                              const struct plait_divergence *d);

#endif
