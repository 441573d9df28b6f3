#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Random whole jobs, in each of which one rank is killed, stopped or late, or
# one of its calls fails: the run ends or goes on in time, and what it has saved
# is right.
FAULTS=yes exec bash "$top_srcdir/tests/jobs/jobs.sh"
