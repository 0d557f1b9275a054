"""Inference over traced programs; its public face is `ppl.infer`."""
