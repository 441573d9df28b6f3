/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_ELASTIC_PRIVATE_H
#define PLAIT_RUNTIME_TRAIN_ELASTIC_PRIVATE_H

#include "runtime/train/elastic.h"

/* Declarations that the files of an elastic run share. */

/* The layout with the most replicas that the configuration allows and for which
 * there are enough members. -1 with err, which one rank has: there is none. */
int elastic_find_layout(const struct plait_elastic *e,
                        const struct plait_train_args *args,
                        const struct plait_members *m,
                        struct plait_layout *layout, struct plait_error *err);
/* Go on from the newest checkpoint of this run, if it has saved one; else start
 * as the run did. All ranks take the latest that any of them knows, because
 * some may have missed it. Collective. */
int elastic_find_beginning(struct plait_session *s,
                           struct plait_train_args *args,
                           struct plait_error *err);

/* -- elastic_device.c ------------------------------------------------------ */

/* How long a process that begins anew may take until it has opened its GPU. */
enum { ELASTIC_ANEW_S = 60 };
/* Where this rank's GPU has failed, waits until the world has lost a process,
 * or for some seconds. */
void elastic_await_news(const struct plait_session *s);
/* After a loss, while the old world is there: whether the GPU still works.
 * Where its context is gone with a neighbour's memory this process begins anew,
 * and does not return. -1 with err: this rank ends. */
int elastic_ask_device(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_error *err);
/* The same when the old world is gone; in the new life it opens the GPU
 * again. */
int elastic_check_device(struct plait_session *s, struct plait_world *kept,
                         const struct plait_train_args *args,
                         struct plait_error *err);

#endif
