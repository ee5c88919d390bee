"""Lab: train several recipes under one budget on the same data, and check the claims of papers about them.

A plan names the runs, the budget and the claims. `lab` trains the runs, evaluates them and compares the scores. A
finished run is never repeated, an interrupted one resumes, and several processes can share the work.
"""
