"""The peers, one file each, with one function: `sampler(case, options)` returns a function `run(data, seed)` that draws.

`run` may be called again with other data of equal shape, and does then what a user's second call does. It returns a dict:

    draws           {name: [chain, draw, ...]}
    print           prints the peer's own summary
    seconds         of warm-up and sampling without compilation, where the wall time of the call is not that
    steps           leapfrog steps of all chains while drawing
    warmup_steps    and in warm-up; or a function that counts them, called once everything is timed
"""
