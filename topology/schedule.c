/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

const char *const plait_schedule_names[PLAIT_NSCHEDULES] = {
    "naive", "gpipe", "1f1b", "interleaved", "zb-h1"};
