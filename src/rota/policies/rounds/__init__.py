"""Policies that plan in rounds.

Such a policy only says who should run; how that becomes a plan is the same for all of them:

* A `ChoicePolicy` is asked at the end of each round who runs next on which GPU type.
* A `SharePolicy` says which share of time each job should spend on each GPU type, as the answer to
  a `RoundProblem`; the dispatcher (`dispatch`) turns shares into whole GPUs.

`drive` makes either of them a policy that decides (`choice_rounds`, `share_rounds`). What both need
is in one place (`rounds`):

* rounds: at the end of one everything is open; within one, what becomes free is given away;
* leases (`leases`): what each job has, since when, and on whose account;
* payback: a job keeps its GPUs until it has made progress for as long as its start took, so that
  costly starts cannot use up the time of rounds;
* starvation rescue: a job that was passed over for too long goes first;
* gangs that no single GPU type can hold take turns with all others;
* `shortfall`: by how many rounds each job is behind.

No policy imports its rounds: `engine.compose` puts both together.
"""
