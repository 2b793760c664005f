"""What each step of a call that splits a batch was given and gave, and what replicas did."""
