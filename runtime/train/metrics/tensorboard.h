/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_RUNTIME_TRAIN_METRICS_TENSORBOARD_H
#define PLAIT_RUNTIME_TRAIN_METRICS_TENSORBOARD_H

#include <stdint.h>

#include "runtime/optim/histogram.h"
#include "runtime/train/metrics/metrics.h"
#include "topology/base/error.h"

/* TensorBoard's event file: records of TensorFlow's TFRecord framing (length,
 * masked CRC-32C, payload, masked CRC-32C), each a protobuf message Event
 * (tensorflow/core/util/event.proto, framework/summary.proto). Only a few of
 * their fields are used, so they are encoded here: generated code would be
 * longer, and would need protoc at build time. */
struct plait_tensorboard;

/* A new file in `dir`, which is made where its parent exists. With `step` > 0
 * it tells TensorBoard that older files end after that step. `config` is
 * shown as text. */
struct plait_tensorboard *plait_tensorboard_create(const char *dir,
                                                   int64_t step,
                                                   const char *config,
                                                   struct plait_error *err);

/* One step, flushed. -1 with errno. */
int plait_tensorboard_write(struct plait_tensorboard *tb,
                            const struct plait_metrics *m);
/* The gradients of step `step`, by tags like gradients/layer_3. */
int plait_tensorboard_histograms(struct plait_tensorboard *tb, int64_t step,
                                 const struct plait_histograms *h);
void plait_tensorboard_destroy(struct plait_tensorboard *tb);

#endif
