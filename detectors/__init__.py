"""Decides what is wrong: pure functions from history to findings, and a fold from findings to incidents."""
