"""The laboratory: recipes put to the test against each other, under one budget, on the same data.

A plan names the runs, the budget and what the papers claim of them; `lab` trains, measures and judges. What is finished
is never done again, what was stopped goes on, and several processes may share the work.
"""
