/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_PLAIT_H
#define PLAIT_PLAIT_H

/* libplait: what a machine and its fabric look like, where each rank of a
 * parallel layout runs, and what that will cost. All types but the error are
 * opaque. Functions keep no state between calls: different objects may be used
 * by different threads, one object by several as long as none changes it. */
#include <plait/config.h>
#include <plait/error.h>
#include <plait/estimate.h>
#include <plait/export.h>
#include <plait/fabric.h>
#include <plait/launch.h>
#include <plait/layout.h>
#include <plait/node.h>
#include <plait/plan.h>

#endif
