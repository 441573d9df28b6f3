# SPDX-License-Identifier: Apache-2.0
# For scripts to source. A test has two tiers: `./run-tests` and `make
# check-quick` set PLAIT_TEST_TIER=quick and take what says each thing once;
# everything else, as CI's `./run-tests --all`, also takes what says it again of
# another case.
tier=${PLAIT_TEST_TIER:-all}

# all_tier: whether this run takes everything
all_tier() { [ "$tier" != quick ]; }
